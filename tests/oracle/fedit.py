"""FEdit's loss in numpy."""

from oracle import basics, nets


def loss(params, held, slow, batch, noise, cfg):
    def edited(p, obs, noise):
        flow = nets.velocity(held["flow"], obs)
        action = basics.box(basics.euler(flow, noise["flow"], cfg.flow_steps))
        moments = nets.gaussian(p["editor"], obs, action)
        edit, log_prob = basics.tanh_gaussian(moments, noise["edit"])
        return basics.box(action + cfg.edit_scale * edit), log_prob

    next_action, _ = edited(held, batch.next_obs, noise["next"])
    critic = basics.bellman(params, batch, basics.next_value(slow, batch, next_action, cfg), cfg)
    cloning = basics.cloning(nets.velocity(params["flow"], batch.obs), batch, noise["match"])

    action, log_prob = edited(params, batch.obs, noise["actor"])
    q = nets.critics(held["critic"], cfg, batch.obs, action).mean()
    actor = nets.positive(held["temperature"]) * log_prob.mean() - q
    _, held_log_prob = edited(held, batch.obs, noise["actor"])
    tuning = basics.tuning(params, held_log_prob, batch.action.shape[-1], cfg)
    return critic + cloning + actor + tuning
