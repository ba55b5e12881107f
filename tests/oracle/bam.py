"""BAM's loss in numpy."""

import numpy as np

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    flow = nets.velocity(held["fast"], batch.next_obs)
    next_action = basics.box(basics.euler(flow, noise["next"], cfg.flow_steps))
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["slow"], batch.obs), batch, noise["match"])

    tuned = nets.velocity(params["fast"], batch.obs)
    base = nets.velocity(slow["slow"], batch.obs)
    h, cost, (x, *steps) = 1 / cfg.flow_steps, 0.0, noise["actor"]
    for i, eps in enumerate(steps[:-1]):
        t = i * h
        sigma = np.sqrt(2 * (1 - t + h) / (t + h))
        f = tuned(x, t)
        cost = cost + 2 / sigma**2 * ((f - base(x, t)) ** 2).sum(axis=-1)
        x = x + h * (2 * f - x / (t + h)) + np.sqrt(h) * sigma * eps
    x = x + h * base(x, 1 - h)
    q = basics.actor_value(cfg, nets.critics(held["critic"], cfg, batch.obs, x))
    return critic + cloning + (cost - cfg.inv_temp * q).mean()
