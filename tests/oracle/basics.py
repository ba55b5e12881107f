"""Pieces that several losses share, in numpy."""

import numpy as np

from oracle import nets


def box(x):
    """Into [-1, 1]; a coordinate outside has no gradient, also where x is complex."""
    return np.where(np.abs(x.real) < 1, x, np.sign(x.real))


def pessimistic(cfg, qs):
    return qs.mean(axis=0) - cfg.rho * qs.std(axis=0)


def target_value(cfg, qs):
    return pessimistic(cfg, qs) if cfg.target == "std" else qs.min(axis=0)


def actor_value(cfg, qs):
    return pessimistic(cfg, qs) if cfg.target == "std" else qs.mean(axis=0)


def bellman(params, batch, next_value, cfg):
    """Squared errors of all critics, which learn."""
    wanted = batch.reward + batch.discount * next_value
    qs = nets.critics(params["critic"], cfg, batch.obs, batch.action)
    return (batch.weight * (qs - wanted) ** 2).mean()


def next_value(slow, batch, action, cfg):
    return target_value(cfg, nets.critics(slow["critic"], cfg, batch.next_obs, action))


def matching(velocity, batch, noise):
    """Flow matching of each row; noise is where the straight paths start, and the times."""
    start, t = noise
    x = (1 - t) * start + t * batch.action
    return ((velocity(x, t) - (batch.action - start)) ** 2).mean(axis=-1)


def cloning(velocity, batch, noise):
    return (batch.weight * matching(velocity, batch, noise)).mean()


def euler(velocity, start, steps):
    x = start
    for k in range(steps):
        x = x + velocity(x, k / steps) / steps
    return x


def tanh_gaussian(moments, noise):
    """A squashed sample and the logarithm of its density."""
    mean, log_std = moments
    x = mean + np.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(x), (normal + 2 * np.log(np.cosh(x))).sum(axis=-1)


def tuning(params, log_prob, dims, cfg):
    """What the temperature learns from; log_prob is that of the constant policy."""
    wanted = cfg.entropy_per_dim * dims
    return nets.positive(params["temperature"]) * (-log_prob.mean() - wanted)
