"""FBRAC's loss in numpy."""

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    def act(p, obs, start):
        flow = nets.velocity(p["actor"], obs)
        return basics.box(basics.euler(flow, start, cfg.flow_steps))

    next_action = act(held, batch.next_obs, noise["next"])
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["actor"], batch.obs), batch, noise["match"])
    action = act(params, batch.obs, noise["actor"])
    q = nets.critics(held["critic"], cfg, batch.obs, action).mean()
    return critic + cloning - q / cfg.alpha
