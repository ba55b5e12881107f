"""FQL's loss in numpy."""

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    next_action = basics.box(nets.onestep(held["onestep"], batch.next_obs, noise["next"]))
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["flow"], batch.obs), batch, noise["match"])

    teacher = nets.velocity(held["flow"], batch.obs)
    taught = basics.box(basics.euler(teacher, noise["actor"], cfg.flow_steps))
    action = nets.onestep(params["onestep"], batch.obs, noise["actor"])
    distilled = ((action - taught) ** 2).mean()
    q = nets.critics(held["critic"], cfg, batch.obs, basics.box(action)).mean()
    return critic + cloning + cfg.alpha * distilled - q
