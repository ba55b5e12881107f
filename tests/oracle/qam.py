"""QAM's loss in numpy: adjoint matching, and what may act on top of the fast flow."""

import numpy as np

from oracle import basics, nets


def roll(tuned, base, noises, last_step):
    """The memoryless SDE of `tuned`; its last step may be one of the flow of `base`."""
    h, path = 1 / (len(noises) - 1), [noises[0]]
    steps = noises[1:] if last_step == "sde" else noises[1:-1]
    for i, eps in enumerate(steps):
        x, t = path[-1], i * h
        drift = 2 * tuned(x, t) - x / (t + h)
        path.append(x + h * drift + np.sqrt(h) * sigma(t, h) * eps)
    return path if last_step == "sde" else [*path, path[-1] + h * base(path[-1], 1 - h)]


def sigma(t, h):
    return np.sqrt(2 * (1 - t + h) / (t + h))


def adjoint_matching(tuned, held, base, score, noises, last_step):
    """score(x) is the gradient that the adjoint is at the end of the path."""
    h, path = 1 / (len(noises) - 1), roll(held, base, noises, last_step)
    g, squares = score(path[-1]), []
    for i in reversed(range(len(path) - 1)):
        x, t = path[i], i * h
        ahead = lambda x, t=t, g=g: (g * (2 * base(x, t + h) - x / (t + h))).sum(axis=-1)
        g = g + h * nets.gradient(ahead, x)
        error = 2 / sigma(t, h) * (tuned(x, t) - base(x, t)) + sigma(t, h) * g
        squares.append((error**2).sum(axis=-1))
    return np.sum(squares, axis=0).mean()


def loss(params, held, slow, batch, noise, cfg):
    def decode(obs, start):
        flow = nets.velocity(held["fast"], obs)
        return basics.box(basics.euler(flow, start, cfg.flow_steps))

    def edited(p, obs, noise):
        action = decode(obs, noise["flow"])
        moments = nets.gaussian(p["editor"], obs, action)
        edit, log_prob = basics.tanh_gaussian(moments, noise["edit"])
        return basics.box(action + cfg.edit_scale * edit), log_prob

    if cfg.head == "onestep":
        action = nets.onestep(held["onestep"], batch.next_obs, noise["next"]["flow"])
        next_action = basics.box(action)
    elif cfg.head == "edit":
        next_action, _ = edited(held, batch.next_obs, noise["next"])
    else:
        next_action = decode(batch.next_obs, noise["next"]["flow"])
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["slow"], batch.obs), batch, noise["match"])

    q = lambda a: nets.critics(slow["critic"], cfg, batch.obs, basics.box(a)).mean(axis=0)
    matched = adjoint_matching(
        nets.velocity(params["fast"], batch.obs),
        nets.velocity(held["fast"], batch.obs),
        nets.velocity(slow["slow"], batch.obs),
        lambda x: -cfg.inv_temp * nets.gradient(q, x),
        noise["adjoint"],
        cfg.last_step,
    )
    total = critic + cloning + matched

    if cfg.head == "onestep":
        action = nets.onestep(params["onestep"], batch.obs, noise["head"]["flow"])
        taught = decode(batch.obs, noise["head"]["flow"])
        q = nets.critics(held["critic"], cfg, batch.obs, basics.box(action)).mean()
        total = total + cfg.alpha * ((action - taught) ** 2).mean() - q
    elif cfg.head == "edit":
        action, log_prob = edited(params, batch.obs, noise["head"])
        q = nets.critics(held["critic"], cfg, batch.obs, action).mean()
        _, held_log_prob = edited(held, batch.obs, noise["head"])
        total = total + nets.positive(held["temperature"]) * log_prob.mean() - q
        total = total + basics.tuning(params, held_log_prob, batch.action.shape[-1], cfg)
    return total
