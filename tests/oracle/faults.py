"""Faults a person could make: case -> what it is -> (oracle module, what stands there, the edit).

The comparison must notice each of them, in the loss or in its gradient.
"""

CLIMBED = 'return pessimistic(cfg, qs) if cfg.target == "std" else qs.mean(axis=0)'
FAULTS = {
    "vine": {
        "sign of the value": ("vine", "actor = -qs", "actor = qs"),
        "cloning of broken chunks": ("vine", "batch.weight * ((actions", "((actions"),
        "cloning of the clipped action": ("vine", "squared(action)", "squared(basics.box(action))"),
        "value of the raw action": ("vine", "basics.box(action)", "action"),
        "no slow critic": ("vine", "next_value(slow,", "next_value(held,"),
        "critic learns from the actor's term": ("vine", 'held["critic"]', 'params["critic"]'),
        "noise one step early": ("vine", "noises[k + 1]", "noises[k]"),
        "mean of the critics in the target": ("basics", "qs.min(axis=0)", "qs.mean(axis=0)"),
        "broken chunks in the critic": ("basics", "(batch.weight * (qs", "(1 * (qs"),
        "bootstrap past success": ("basics", "batch.discount *", "0.729 *"),
        "another gelu": ("nets", "0.044715", "0.0447"),
        "another epsilon": ("nets", "1e-6", "1e-5"),
        "branches without their input": ("nets", "x = x + hidden(", "x = hidden("),
    },
    "vine teacher": {
        "teacher learns from the student": ("vine", 'held["teacher"]', 'params["teacher"]'),
        "teacher is clipped": ("vine", "(action - taught)", "(action - basics.box(taught))"),
        "noise of its own": (
            "vine",
            "obs), noises)\n        actor",
            'obs), noise["next"])\n        actor',
        ),
    },
    "vine euler": {
        "time runs ahead": ("vine", "velocity(x, k / steps)", "velocity(x, (k + 1) / steps)"),
        "value of another critic": ("vine", "qs.mean(axis=0)", "qs.min(axis=0)"),
    },
    "vine euler estimates": {
        "estimates are the path": ("vine", "(1 - k / steps) * v", "v / steps"),
        "sum over steps": (
            "vine",
            "squared(estimates).mean()",
            "squared(estimates).mean(-1).sum()",
        ),
    },
    "vine euler flow": {
        "constant flow is cloned": ("vine", 'cloning(params["actor"])', 'cloning(held["actor"])'),
        "velocity points to the noise": (
            "basics",
            "(batch.action - start)",
            "(start - batch.action)",
        ),
        "broken chunks are cloned": ("basics", "(batch.weight * matching", "(1 * matching"),
    },
    "rebrac": {
        "mean over coordinates": ("rebrac", ".sum(axis=-1)", ".mean(axis=-1)"),
        "anchor to broken chunks": ("rebrac", "batch.weight * ", ""),
        "scale is differentiated": ("rebrac", "value(held)", "value(params)"),
        "no slow actor": ("rebrac", 'slow["actor"]', 'held["actor"]'),
        "noise is not bounded": ("rebrac", "-cfg.noise_clip, cfg.noise_clip", "-9, 9"),
        "actor climbs the mean": ("basics", CLIMBED, "return qs.mean(axis=0)"),
        "deviation of a sample": ("basics", "qs.std(axis=0)", "qs.std(axis=0, ddof=1)"),
    },
    "fql": {
        "sign of the value": ("fql", "distilled - q", "distilled + q"),
        "student is clipped": ("fql", "(action - taught)", "(basics.box(action) - taught)"),
        "teacher is not clipped": ("fql", "basics.box(basics.euler(", "(basics.euler("),
        "value of the raw action": ("fql", "basics.box(action)", "action"),
        "distillation leaves out broken chunks": (
            "fql",
            "((action",
            "(batch.weight[:, None] * (action",
        ),
        "teacher learns from the student": ("fql", 'held["flow"]', 'params["flow"]'),
    },
    "fawac": {
        "sign of the advantage": ("fawac", "np.exp(cfg", "np.exp(-cfg"),
        "weights are not bounded": ("fawac", "cfg.max_weight", "np.inf"),
        "value of broken chunks": ("fawac", "(batch.weight * (slow_qs", "(1 * (slow_qs"),
        "value regresses on the fast critics": ("fawac", 'slow["critic"]', 'held["critic"]'),
        "value regresses on the mean": ("fawac", "(slow_qs - v)", "(slow_qs.mean(axis=0) - v)"),
        "weight is differentiated": ("fawac", 'held["value"]', 'params["value"]'),
    },
    "ifql": {
        "the other expectile": ("ifql", "above < 0", "above > 0"),
        "expectile leaves out broken chunks": ("ifql", "(np.abs(", "(batch.weight * np.abs("),
        "expectile of the fast critics": ("ifql", 'slow["critic"]', 'held["critic"]'),
        "target is differentiated": ("ifql", 'held["value"]', 'params["value"]'),
    },
    "dsrl": {
        "flow of the fast weights": ("dsrl", 'slow["flow"]', 'held["flow"]'),
        "latent noise is scaled": (
            "dsrl",
            "decode(batch.obs, ",
            "decode(batch.obs, cfg.noise_scale * ",
        ),
        "latent critics learn the mean": (
            "dsrl",
            "(latent - wanted)",
            "(latent - wanted.mean(axis=0))",
        ),
        "entropy's sign": ("dsrl", "* log_prob.mean() - q", "* -log_prob.mean() - q"),
        "value of the unscaled noise": (
            "dsrl",
            "obs, cfg.noise_scale * steered).",
            "obs, steered).",
        ),
        "entropy is differentiated": (
            "dsrl",
            "tuning(params, held_log_prob",
            "tuning(params, log_prob",
        ),
        "deviation is not bounded": ("nets", "-20, 2", "-20, 20"),
        "density of the normal": ("basics", "normal + 2", "normal + 0"),
    },
    "fedit": {
        "edit leaves the box": ("fedit", "basics.box(action +", "(action +"),
        "flow's action is not clipped": ("fedit", "basics.box(basics.euler", "(basics.euler"),
        "flow learns from the edit": ("fedit", 'held["flow"]', 'p["flow"]'),
        "temperature is learned twice": ("fedit", 'held["temperature"]', 'params["temperature"]'),
        "entropy of a coordinate": ("fedit", "batch.action.shape[-1]", "1"),
    },
    "fbrac": {
        "alpha multiplies": ("fbrac", "q / cfg.alpha", "q * cfg.alpha"),
        "value of the raw action": ("fbrac", "basics.box(basics.euler", "(basics.euler"),
        "no gradient through the steps": ("fbrac", "act(params", "act(held"),
        "sign of the value": ("fbrac", "cloning - q", "cloning + q"),
    },
    "bam": {
        "action is clipped": ("bam", "batch.obs, x)", "batch.obs, basics.box(x))"),
        "base of the fast weights": ("bam", 'slow["slow"]', 'held["slow"]'),
        "mean over coordinates": ("bam", ".sum(axis=-1)", ".mean(axis=-1)"),
        "penalty has a step size": ("bam", "cost + 2", "cost + h * 2"),
        "last step by the tuned field": ("bam", "h * base(x", "h * tuned(x"),
        "actor climbs the mean": ("basics", CLIMBED, "return qs.mean(axis=0)"),
    },
    "qam": {
        "base of the fast weights": ("qam", 'slow["slow"]', 'held["slow"]'),
        "adjoint through the tuned drift": ("qam", "2 * base(x", "2 * held(x"),
        "drift at the time of the state": ("qam", "base(x, t + h)", "base(x, t)"),
        "value of the raw end": ("qam", "basics.box(a)", "a"),
        "pull of the fast critics": ("qam", 'slow["critic"]', 'held["critic"]'),
        "sign of the pull": ("qam", "-cfg.inv_temp", "cfg.inv_temp"),
        "last step by the tuned field": ("qam", "h * base(", "h * tuned("),
        "path is differentiated": ("qam", 'held["fast"], batch.obs', 'params["fast"], batch.obs'),
        "mean over coordinates": ("qam", "(error**2).sum", "(error**2).mean"),
    },
    "qam-fql": {
        "sign of the value": ("qam", "** 2).mean() - q", "** 2).mean() + q"),
        "student is clipped": ("qam", "(action - taught)", "(basics.box(action) - taught)"),
        "value of the raw action": ("qam", "basics.box(action)).mean()", "action).mean()"),
        "fast flow acts": (
            "qam",
            "next_action = basics.box(action)",
            'next_action = decode(batch.next_obs, noise["next"]["flow"])',
        ),
    },
    "qam-edit": {
        "edit leaves the box": ("qam", "basics.box(action +", "(action +"),
        "temperature is learned twice": ("qam", 'held["temperature"]', 'params["temperature"]'),
        "entropy is differentiated": (
            "qam",
            "tuning(params, held_log_prob",
            "tuning(params, log_prob",
        ),
        "entropy of a coordinate": ("qam", "batch.action.shape[-1]", "1"),
    },
    "dac": {
        "estimate leaves the box": ("score", "basics.box((x", "((x"),
        "noise at the end": (
            "score",
            "np.sqrt(beta) * eps if i > 1 else 0.0",
            "np.sqrt(beta) * eps",
        ),
        "gradient at the clipped action": ("score", "(q, noisy)", "(q, basics.box(noisy))"),
        "gradient of the fast critics": ("score", 'slow["critic"]', 'held["critic"]'),
        "pull without the noise's share": ("score", "np.sqrt(1 - bar[i]) * gradient", "gradient"),
        "broken chunks": ("score", "batch.weight * ", ""),
    },
    "qsm": {
        "clipped before the noise": (
            "score",
            "basics.box(clean + noise)",
            "basics.box(clean) + noise",
        ),
        "sign of the pull": ("score", "predicted + cfg", "predicted - cfg"),
        "sum over coordinates": ("score", "error.mean(axis=-1)", "error.sum(axis=-1)"),
        "the noise of the level above": ("score", "(2 * i - 1)", "(2 * i)"),
    },
    "cgql": {
        "field of the fast weights": ("cgql", 'slow["flow"]', 'held["flow"]'),
        "guided by the slow critics": ("cgql", 'q_at(held["critic"]', 'q_at(slow["critic"]'),
        "critics guide to the end": ("cgql", "(1 - t) * nets", "nets"),
        "no way out from the origin": ("cgql", "nets.gradient(q, x) + x", "nets.gradient(q, x)"),
    },
    "cgql-m": {
        "guided as by clean actions": ("cgql", "else t", "else 1.0"),
        "fitted to the fast critics": ("cgql", "clean = q_at(slow", "clean = q_at(held"),
        "fitted to the mean": ("cgql", "(predicted - clean)", "(predicted - clean.mean(axis=0))"),
        "fit of broken chunks": ("cgql", "(batch.weight * error)", "error"),
    },
    "cgql-l": {
        "sign of the error": ("cgql", "(wanted - predicted)", "(predicted - wanted)"),
        "no jump": ("cgql", "predicted, error)", "predicted, error + np.exp(5))"),
        "bound of the exponent": ("cgql", "error <= 5", "error <= 50"),
    },
}
