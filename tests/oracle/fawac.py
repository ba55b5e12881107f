"""FAWAC's loss in numpy."""

import numpy as np

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    flow = nets.velocity(held["actor"], batch.next_obs)
    next_action = basics.box(basics.euler(flow, noise["next"], cfg.flow_steps))
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)

    slow_qs = nets.critics(slow["critic"], cfg, batch.obs, batch.action)
    v = nets.critics(params["value"], cfg, batch.obs)
    value = (batch.weight * (slow_qs - v) ** 2).mean()

    qs = nets.critics(held["critic"], cfg, batch.obs, batch.action)
    advantage = qs.mean(axis=0) - nets.critics(held["value"], cfg, batch.obs)[0]
    importance = np.minimum(np.exp(cfg.inv_temp * advantage), cfg.max_weight)
    error = basics.matching(nets.velocity(params["actor"], batch.obs), batch, noise["match"])
    return critic + value + (batch.weight * importance * error).mean()
