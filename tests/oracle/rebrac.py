"""ReBRAC's loss in numpy."""

import numpy as np

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    smoothing = np.clip(cfg.noise * noise["next"], -cfg.noise_clip, cfg.noise_clip)
    next_action = basics.box(nets.deterministic(slow["actor"], batch.next_obs) + smoothing)
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)

    def value(p):
        action = nets.deterministic(p["actor"], batch.obs)
        return action, basics.actor_value(cfg, nets.critics(held["critic"], cfg, batch.obs, action))

    action, q = value(params)
    scale = np.abs(value(held)[1]).mean()
    anchor = (batch.weight * ((action - batch.action) ** 2).sum(axis=-1)).mean()
    return critic - q.mean() / scale + cfg.alpha * anchor
