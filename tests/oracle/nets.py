"""The networks in numpy. Parameters are flat: {"Hidden_0/Dense_0/kernel": array, ...}.

Complex numbers pass through unharmed, so that `gradient` is exact to rounding.
"""

import numpy as np


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


def dense(p, at, x):
    return x @ p[f"{at}/kernel"] + p[f"{at}/bias"]


def norm(p, at, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-6) * p[f"{at}/scale"] + p[f"{at}/bias"]


def count(p, at, kind):
    """How many modules of a kind stand under `at`."""
    parts = (path.removeprefix(f"{at}/").split("/")[0] for path in p if path.startswith(f"{at}/"))
    return len({part for part in parts if part.startswith(f"{kind}_")})


def hidden(p, at, x, layer_norm=False, activation=gelu):
    for n in range(count(p, at, "Dense")):
        x = activation(dense(p, f"{at}/Dense_{n}", x))
        x = norm(p, f"{at}/LayerNorm_{n}", x) if layer_norm else x
    return x


def mlp(p, at, x, layer_norm):
    return dense(p, f"{at}/Dense_0", hidden(p, f"{at}/Hidden_0", x, layer_norm))


def branches(p, at, x):
    x = hidden(p, f"{at}/Hidden_0", x, layer_norm=True)
    for n in range(1, count(p, at, "Hidden")):
        x = x + hidden(p, f"{at}/Hidden_{n}", x, layer_norm=True)
    return dense(p, f"{at}/Dense_0", x)


def pre_norm(p, at, x):
    x = dense(p, f"{at}/Dense_0", x)
    blocks = count(p, at, "Hidden")
    for n in range(blocks):
        branch = hidden(p, f"{at}/Hidden_{n}", norm(p, f"{at}/LayerNorm_{n}", x))
        x = x + dense(p, f"{at}/Dense_{n + 1}", branch)
    return dense(p, f"{at}/Dense_{blocks + 1}", norm(p, f"{at}/LayerNorm_{blocks}", x))


def critics(p, cfg, *inputs):
    """Every critic's value of every row, [E, B]."""
    x = np.concatenate(inputs, axis=-1)
    if cfg.critic == "mlp":
        one = lambda p: mlp(p, "VmapMLP_0", x, layer_norm=True)
    elif cfg.critic_layout == "branches":
        one = lambda p: branches(p, "VmapResidualMLP_0", x)
    else:
        one = lambda p: pre_norm(p, "VmapPreNormMLP_0", x)
    size = len(next(iter(p.values())))
    return np.stack([one({k: v[e] for k, v in p.items()})[:, 0] for e in range(size)])


def velocity(p, obs, layer_norm=False):
    """v(x, t) at these observations; t is one number or [B, 1]."""

    def at(x, t):
        time = np.broadcast_to(t, (len(x), 1))
        return mlp(p, "layers", np.concatenate([obs, x, time], axis=-1), layer_norm)

    return at


def onestep(p, obs, noise):
    return mlp(p, "layers", np.concatenate([obs, noise], axis=-1), layer_norm=False)


def deterministic(p, obs):
    return np.tanh(dense(p, "Dense_0", hidden(p, "Hidden_0", obs)))


def gaussian(p, *inputs):
    """Mean and log standard deviation."""
    h = hidden(p, "Hidden_0", np.concatenate(inputs, axis=-1))
    return dense(p, "Dense_0", h), np.clip(dense(p, "Dense_1", h), -20, 2)


def positive(p):
    return np.exp(p["log"])


def noise_predictor(p, obs):
    """eps(x, i) at these observations; the level i is one number or [B, 1]."""

    def at(x, i):
        turns = 2 * np.pi * np.broadcast_to(i, (len(x), 1)) @ p["rates"]
        waves = np.concatenate([np.cos(turns), np.sin(turns)], axis=-1)
        cond = dense(p, "Dense_0", hidden(p, "Hidden_0", waves, activation=mish))
        inputs = np.concatenate([x, obs, cond], axis=-1)
        return dense(p, "Dense_1", hidden(p, "Hidden_1", inputs, activation=mish))

    return at


def gradient(function, x):
    """d function / dx of every row, for a function from [B, A] to [B]."""
    tiny = 1e-30
    steps = 1j * tiny * np.eye(x.shape[-1])
    return np.stack([function(x + step).imag / tiny for step in steps], axis=-1)
