"""VINE's loss in numpy: two samplers, four ways to hold the policy to the data."""

import numpy as np

from oracle import basics, nets


def renoising(velocity, noises):
    """Algorithm 1: the action, and all estimates on the way."""
    steps, a, estimates = len(noises) - 1, noises[0], []
    for k in range(steps):
        t = k / steps
        x = t * a + (1 - t) * noises[k + 1]
        a = x + (1 - t) * velocity(x, t)
        estimates.append(a)
    return a, np.stack(estimates)


def euler(velocity, noises):
    steps, x, estimates = len(noises) - 1, noises[0], []
    for k in range(steps):
        v = velocity(x, k / steps)
        estimates.append(x + (1 - k / steps) * v)
        x = x + v / steps
    return x, np.stack(estimates)


def loss(params, held, slow, batch, noise, cfg):
    run = {"vine": renoising, "euler": euler}[cfg.sampler]
    field = lambda p, obs: nets.velocity(p, obs, cfg.actor_layer_norm)

    next_action, _ = run(field(held["actor"], batch.next_obs), cfg.noise * noise["next"])
    next_value = basics.next_value(slow, batch, basics.box(next_action), cfg)
    critic = basics.bellman(params, batch, next_value, cfg)

    noises = cfg.noise * noise["actor"]
    action, estimates = run(field(params["actor"], batch.obs), noises)
    qs = nets.critics(held["critic"], cfg, batch.obs, basics.box(action))
    actor = -qs.mean(axis=0).mean()

    squared = lambda actions: batch.weight * ((actions - batch.action) ** 2).mean(axis=-1)
    cloning = lambda p: basics.cloning(field(p, batch.obs), batch, noise["match"])
    if cfg.regulariser == "endpoint":
        actor += cfg.alpha * squared(action).mean()
    elif cfg.regulariser == "estimates":
        actor += cfg.alpha * squared(estimates).mean()
    elif cfg.regulariser == "flow":
        actor += cfg.alpha * cloning(params["actor"])
    else:
        taught, _ = run(field(held["teacher"], batch.obs), noises)
        actor += cfg.alpha * ((action - taught) ** 2).mean() + cloning(params["teacher"])
    return critic + actor
