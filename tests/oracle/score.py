"""DAC's and QSM's losses in numpy."""

import numpy as np

from oracle import basics, nets


def schedule(steps):
    """What a level keeps of the level before it, and of the clean action; level 0 is clean."""
    i = np.arange(1, steps + 1)
    alpha = np.exp(-(0.1 + 9.9 * (2 * i - 1) / (2 * steps)) / steps)
    alpha = np.append(1.0, alpha)
    return alpha, np.cumprod(alpha)


def dac_step(alpha, bar, predict, x, i, eps):
    """The mean of level i - 1 given x and the estimate in the box, and noise but at the end."""
    clean = basics.box((x - np.sqrt(1 - bar[i]) * predict(x, i)) / np.sqrt(bar[i]))
    beta = 1 - alpha[i]
    mean = np.sqrt(bar[i - 1]) * beta * clean + np.sqrt(alpha[i]) * (1 - bar[i - 1]) * x
    noise = np.sqrt(beta) * eps if i > 1 else 0.0
    return mean / (1 - bar[i]) + noise


def qsm_step(alpha, bar, predict, x, i, eps):
    """To the estimate itself, noise but at the end, and into the box every time."""
    clean = (x - np.sqrt(1 - bar[i]) * predict(x, i)) / np.sqrt(bar[i])
    noise = np.sqrt(1 - alpha[i]) * eps if i > 1 else 0.0
    return basics.box(clean + noise)


def ancestral_step(alpha, bar, predict, x, i, eps):
    """The mean of level i - 1 by the noise in x, noise but at the end, and into the box."""
    beta = 1 - alpha[i]
    mean = (x - beta / np.sqrt(1 - bar[i]) * predict(x, i)) / np.sqrt(alpha[i])
    return basics.box(mean + (i > 1) * np.sqrt(beta) * eps)


def loss(params, held, slow, batch, noise, cfg):
    alpha, bar = schedule(cfg.flow_steps)
    step = {"ddpm": dac_step, "jump": qsm_step, "ancestral": ancestral_step}[cfg.sampler]
    predict = nets.noise_predictor(held["actor"], batch.next_obs)
    x, *rest = noise["next"]
    for i, eps in zip(range(cfg.flow_steps, 0, -1), rest, strict=True):
        x = step(alpha, bar, predict, x, i, eps)
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, x, cfg), cfg)

    i, eps = noise["level"][:, None], noise["noise"]
    noisy = np.sqrt(bar[i]) * batch.action + np.sqrt(1 - bar[i]) * eps
    predicted = nets.noise_predictor(params["actor"], batch.obs)(noisy, i)
    q = lambda a: nets.critics(slow["critic"], cfg, batch.obs, a).mean(axis=0)
    gradient = nets.gradient(q, noisy)
    if cfg.pull == "qsm":
        pull = (predicted + cfg.inv_temp * gradient) ** 2
    else:
        pull = np.sqrt(1 - bar[i]) * gradient * predicted
    error = pull + cfg.alpha * (predicted - eps) ** 2
    return critic + (batch.weight * error.mean(axis=-1)).mean()
