"""CGQL's losses in numpy. The critics take a time; at 1 an action is clean."""

import numpy as np

from oracle import basics, nets


def q_at(p, cfg, obs, action, t):
    return nets.critics(p, cfg, obs, action, np.broadcast_to(t, (len(obs), 1)))


def guided(held, slow, obs, start, cfg):
    """The slow flow, bent by the critics at every step but the first."""
    flow, x = nets.velocity(slow["flow"], obs), start
    for k in range(cfg.flow_steps):
        t = k / cfg.flow_steps
        v = flow(x, t)
        if k > 0:
            time = 1.0 if cfg.mode == "simple" else t
            q = lambda a, time=time: q_at(held["critic"], cfg, obs, a, time).mean(axis=0)
            v = v + cfg.guidance / t * (cfg.inv_temp * (1 - t) * nets.gradient(q, x) + x)
        x = x + v / cfg.flow_steps
    return basics.box(x)


def linex(predicted, wanted, inv_temp):
    error = inv_temp * (wanted - predicted)
    return np.where(error <= 5, np.exp(np.minimum(error, 5)) + inv_temp * predicted, error)


def loss(params, held, slow, batch, noise, cfg):
    next_action = guided(held, slow, batch.next_obs, noise["next"], cfg)
    next_qs = q_at(slow["critic"], cfg, batch.next_obs, next_action, 1.0)
    wanted = batch.reward + batch.discount * basics.target_value(cfg, next_qs)
    qs = q_at(params["critic"], cfg, batch.obs, batch.action, 1.0)
    total = (batch.weight * (qs - wanted) ** 2).mean()

    if cfg.mode != "simple":
        start, t = noise["noisy"]
        noisy = (1 - t) * start + t * batch.action
        predicted = q_at(params["critic"], cfg, batch.obs, noisy, t)
        clean = q_at(slow["critic"], cfg, batch.obs, batch.action, 1.0)
        squared = cfg.mode == "mse"
        error = (predicted - clean) ** 2 if squared else linex(predicted, clean, cfg.inv_temp)
        total = total + cfg.noisy_weight * (batch.weight * error).mean()
    return total + basics.cloning(nets.velocity(params["flow"], batch.obs), batch, noise["match"])
