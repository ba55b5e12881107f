"""DSRL's loss in numpy."""

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    def decode(obs, start):
        flow = nets.velocity(slow["flow"], obs)
        return basics.box(basics.euler(flow, start, cfg.flow_steps))

    def steer(p, obs, noise):
        return basics.tanh_gaussian(nets.gaussian(p["steer"], obs), noise)

    steered, _ = steer(held, batch.next_obs, noise["next"])
    next_action = decode(batch.next_obs, cfg.noise_scale * steered)
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["flow"], batch.obs), batch, noise["match"])

    decoded = decode(batch.obs, noise["latent"])
    wanted = nets.critics(held["critic"], cfg, batch.obs, decoded)
    latent = nets.critics(params["latent"], cfg, batch.obs, noise["latent"])
    distilled = ((latent - wanted) ** 2).mean()

    steered, log_prob = steer(params, batch.obs, noise["actor"])
    q = nets.critics(held["latent"], cfg, batch.obs, cfg.noise_scale * steered).mean()
    actor = nets.positive(held["temperature"]) * log_prob.mean() - q
    _, held_log_prob = steer(held, batch.obs, noise["actor"])
    tuning = basics.tuning(params, held_log_prob, batch.action.shape[-1], cfg)
    return critic + cloning + distilled + actor + tuning
