"""IFQL's loss in numpy."""

import numpy as np

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    slow_qs = nets.critics(slow["critic"], cfg, batch.obs, batch.action)
    above = basics.target_value(cfg, slow_qs) - nets.critics(params["value"], cfg, batch.obs)[0]
    value = (np.abs(cfg.kappa - (above < 0)) * above**2).mean()

    next_value = nets.critics(held["value"], cfg, batch.next_obs)[0]
    critic = basics.bellman(params, batch, next_value, cfg)
    cloning = basics.cloning(nets.velocity(params["flow"], batch.obs), batch, noise["match"])
    return value + critic + cloning
