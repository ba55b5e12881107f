"""What decides the contents of a dataset, and the recipes of the official ones."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from vinerl.errors import InputError

Kind = Literal["navigate", "stitch", "explore", "play"]

GENERATOR = 3  # counts changes that alter the arrays


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is in a dataset, the versions of the simulator apart."""

    dataset: str
    env: str
    kind: Kind
    episodes: int  # of the training file; a tenth of it, at least one, for validation
    rows: int  # of an episode, the final observation among them
    noise: float  # standard deviation of the noise on actions
    seed: int = 0
    controller: str | None = None  # sha256 of its file, where the robot needs one
    generator: int = GENERATOR

    @property
    def validation(self) -> int:
        return max(1, self.episodes // 10)

    @property
    def total(self) -> int:
        return self.episodes + self.validation

    @property
    def robot(self) -> str | None:
        """Whose controller the recipe needs: a point goes where it is told, an arm has a plan."""
        return {"antm": "ant", "huma": "humanoid"}.get(self.dataset[:4])

    @property
    def together(self) -> int:
        """Episodes that are made at once: a controller is asked for all of them."""
        return 1 if self.kind == "play" else 10

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Size(NamedTuple):
    episodes: int
    rows: int


class Cost(NamedTuple):
    """What a row costs: rows that one core makes in a second, and bytes on disk."""

    rate: float
    bytes: float


NAVIGATE = {
    "pointmaze": {"medium": Size(1000, 1001), "large": Size(1000, 1001), "giant": Size(500, 2001)},
    "antmaze": {"medium": Size(1000, 1001), "large": Size(1000, 1001), "giant": Size(500, 2001)},
    "humanoidmaze": {
        "medium": Size(1000, 2001),
        "large": Size(1000, 2001),
        "giant": Size(1000, 4001),
    },
}
STITCH = {
    "pointmaze": dict.fromkeys(("medium", "large", "giant"), Size(5000, 201)),
    "antmaze": dict.fromkeys(("medium", "large", "giant"), Size(5000, 201)),
    "humanoidmaze": dict.fromkeys(("medium", "large"), Size(5000, 401))
    | {"giant": Size(10000, 401)},
}
EXPLORE = {"antmaze": dict.fromkeys(("medium", "large"), Size(10000, 501))}
MAZES: dict[Kind, dict] = {"navigate": NAVIGATE, "stitch": STITCH, "explore": EXPLORE}

PLAY = (
    dict.fromkeys(
        ("cube-single", "cube-double", "scene", "puzzle-3x3", "puzzle-4x4"), Size(1000, 1001)
    )
    | dict.fromkeys(("cube-triple", "puzzle-4x5"), Size(3000, 1001))
    | dict.fromkeys(("cube-quadruple", "puzzle-4x6"), Size(5000, 1001))
)

# Between a core that works alone and one of sixteen that all do: good to a factor of two.
COSTS = {
    "pointmaze": Cost(14_000, 21),
    "antmaze": Cost(2_000, 245),
    "humanoidmaze": Cost(2_000, 560),  # from its simulator: none has been made yet
    "cube": Cost(450, 320),
    "scene": Cost(400, 270),
    "puzzle": Cost(400, 245),
}


def _official() -> dict[str, Recipe]:
    found = {}
    for kind, robots in MAZES.items():
        for robot, sizes in robots.items():
            noise = 1.0 if kind == "explore" else 0.5 if robot == "pointmaze" else 0.2
            for size, (episodes, rows) in sizes.items():
                name, env = f"{robot}-{size}-{kind}-v0", f"{robot}-{size}-v0"
                found[name] = Recipe(name, env, kind, episodes, rows, noise)
    for task, (episodes, rows) in PLAY.items():
        name = f"{task}-play-v0"
        found[name] = Recipe(name, f"{task}-v0", "play", episodes, rows, noise=0.1)
    return found


OFFICIAL = _official()


def official(dataset: str) -> Recipe:
    """The benchmark's own recipe, which its number of episodes may be changed in."""
    if dataset not in OFFICIAL:
        raise InputError(
            f"there is no recipe for {dataset!r}; there are:\n  " + "\n  ".join(OFFICIAL)
        )
    return OFFICIAL[dataset]


def cost(recipe: Recipe, cores: int) -> tuple[float, float]:
    """About how many seconds making it takes, and how many bytes it has then."""
    each = COSTS[recipe.dataset.split("-")[0]]
    rows = recipe.total * recipe.rows
    return rows / each.rate / cores, rows * each.bytes
