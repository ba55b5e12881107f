"""The toy's page: the networks of one seed in an HTML file that runs them."""

import json
from pathlib import Path
from typing import Any

from vinerl import disk
from vinerl.bench.studies import pentagon
from vinerl.bench.studies.toy import ALPHAS, COLUMNS, Lines, Setting, average

TEMPLATE = Path(__file__).with_name("pages") / "toy.html"


def write(lines: Lines, path: Path) -> Path:
    """Weights are those of the first seed, numbers the mean of all."""
    page = TEMPLATE.read_text(encoding="utf-8")
    text = json.dumps(contents(lines), separators=(",", ":"), allow_nan=False)
    disk.write(path, page.replace("/*TOY*/", text).encode())
    return path


def contents(lines: Lines) -> dict[str, Any]:
    seeds = sorted({s.seed for s in lines})
    shown = {name(s): s for s in lines if s.seed == seeds[0]}
    return {
        "modes": pentagon.MODES.tolist(),
        "rewards": pentagon.REWARDS.tolist(),
        "width": pentagon.WIDTH,
        "steps": pentagon.K,
        "alphas": ALPHAS,
        "seeds": f"{len(seeds)} seed{'s' * (len(seeds) > 1)}",
        "collapsed": {f"{a:g}": pentagon.collapsed(a).tolist() for a in ALPHAS},
        "nets": {key: lines[s]["weights"] for key, s in shown.items()},
        "numbers": {
            key: {column: average(lines, column, *s[:3]) for column in COLUMNS}
            for key, s in shown.items()
        },
    }


def name(setting: Setting) -> str:
    """As the page asks for it: policy/sampler, and the weight where there is one."""
    weight = [f"{setting.alpha:g}"] if setting.alpha else []
    return "/".join([setting.policy, setting.sampler, *weight])
