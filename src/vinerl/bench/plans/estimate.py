"""What runs take on an H200, alone and side by side: measured for VINE, counted for the others.

Measured at antmaze sizes in bfloat16, the device to itself: a step of VINE (batches of 512) takes
1.87 ms for 4 members and 4.02 for 12 (for 1 it takes 1.4, a third more than this account);
compiling 15 to 75 s; the evaluation at the end 45 s and more. Two runs that share the GPU through
MPS make a sixth more steps together than one alone. Three of a queue, all of VINE, 150k steps and
begun at once (4 members in TF32, 4 in bfloat16, 6 with Euler's sampler), were over after 19:04,
16:15 and 16:39 with other work on the machine; by this account after 19:27, 15:18 and 17:50.

The rest is computed. An agent's step is to VINE's as its matrix products are, which
`vinerl.train.cost` counts; steps of four members alone were 0.8 (CGQL) to 1.4 times (IFQL) such an
account from VINE's step of the same commit. An agent of one's own is taken for VINE. TF32 is what
makes those three come out, and full float32 is from two members that made 54 steps a second beside
two other runs. Chunks of five actions (2 to 3% more products) and a teacher (18%) are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vinerl.rl.learner import AgentConfig

STEP, MEMBER = 0.8, 0.27  # milliseconds
BESIDE = 1.1  # times that, with evaluations beside it
START, END = 60.0, 60.0  # seconds
TOGETHER = 7 / 6  # steps of several runs on one device, to those of one alone
BATCH = 512
# Millions of operations in the products of a step for each row of its batch, at antmaze sizes and
# with the protocol's networks.
PRODUCTS = {
    "vine": 115.5,
    "rebrac": 102.7,
    "fql": 123.8,
    "fawac": 123.7,
    "ifql": 75.3,
    "qam": 230.4,
    "qam-fql": 269.0,
    "qam-edit": 285.3,
    "dac": 145.5,
    "qsm": 145.5,
    "cgql": 407.7,
    "cgql-m": 471.8,
    "cgql-l": 471.8,
    "dsrl": 204.1,
    "fedit": 140.0,
    "fbrac": 165.9,
    "bam": 237.2,
}
SLOWER = {"bfloat16": 1.0, "float32": 1.6, "full-float32": 5.0}  # times as long a step


class Cost(NamedTuple):
    """Seconds of a run, or of what is left of it, that has the device to itself."""

    start: float
    training: float
    end: float
    wait: float = 0.0  # before it can begin

    @property
    def seconds(self) -> float:
        return self.start + self.training + self.end


def cost(agent: str, config: AgentConfig, members: int, steps: int) -> Cost:
    products = PRODUCTS.get(agent, PRODUCTS["vine"]) * config.batch_size
    relative = products / (PRODUCTS["vine"] * BATCH) * SLOWER[config.precision]
    return Cost(START, steps * BESIDE * relative * (STEP + MEMBER * members) / 1000, END)


def over(runs: Sequence[Cost], jobs: int) -> list[float]:
    """When each will be over: begun in order, so many at once, on one device.

    Only training shares it: compiling and evaluating take as long as alone.
    """
    ends, now, waiting = [0.0] * len(runs), 0.0, list(range(len(runs)))
    left: dict[int, list[tuple[bool, float]]] = {}  # whether it is training, for so many seconds
    while waiting or left:
        while waiting and len(left) < jobs:
            run = runs[first := waiting.pop(0)]
            apart = max(0.0, run.wait - now) + run.start
            left[first] = [(False, apart), (True, run.training), (False, run.end)]
        training = sum(parts[0][0] for parts in left.values())
        shared = 1.0 if training < 2 else TOGETHER / training
        speeds = {i: shared if parts[0][0] else 1.0 for i, parts in left.items()}
        passed = min(left[i][0][1] / speed for i, speed in speeds.items())
        now += passed
        for i, speed in speeds.items():
            kind, seconds = left[i].pop(0)
            if (rest := seconds - passed * speed) > 1e-6:
                left[i].insert(0, (kind, rest))
            elif not left[i]:
                ends[i] = now
                del left[i]
    return ends
