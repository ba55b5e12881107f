"""What runs take on an H200, alone and side by side, by what was measured there.

Measured at antmaze sizes in bfloat16, the device to itself: a step of VINE (batches of 512) takes
1.87 ms for 4 members and 4.02 for 12 (for 1 it takes 1.4, a third more than this account);
compiling 15 to 75 s; the evaluation at the end 45 s and more. Two runs that share the GPU through
MPS make a sixth more steps together than one alone. Three of a queue, all of VINE, 150k steps and
begun at once (4 members in TF32, 4 in bfloat16, 6 with Euler's sampler), were over after 19:04,
16:15 and 16:39 with other work on the machine; by this account after 19:27, 15:18 and 17:50.

Of the other agents, steps of four members alone were measured on one machine, each with its own
protocol's critics and batch; a step is to VINE's as it was then, for any number of members. An
agent of one's own is taken for VINE. TF32 is what makes those three come out, and full float32 is
from two members that made 54 steps a second beside two other runs. Left out are chunks of five
actions (2 to 3% more products), a teacher (18%), other critics than the protocol's, and that four
at once are slower than their shares: FBRAC with 8 members, 150k steps, beside making data and then
three of VINE with 6 members and chunks, 60k steps, were over after 18 and 25 minutes; by this
account 9 and 18.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vinerl.bench.run import tuned
from vinerl.rl.learner import AgentConfig

STEP, MEMBER = 0.8, 0.27  # milliseconds
BESIDE = 1.1  # times that, with evaluations beside it
START, END = 60.0, 60.0  # seconds
TOGETHER = 7 / 6  # steps of several runs on one device, to those of one alone
STEPS = {  # milliseconds, of four members with their own protocol's batch
    "vine": 2.20,
    "rebrac": 1.28,
    "fql": 1.42,
    "fawac": 1.34,
    "ifql": 1.02,
    "qam": 2.47,
    "qam-fql": 2.89,
    "qam-edit": 3.03,
    "dac": 1.86,
    "qsm": 1.85,
    "cgql": 3.15,
    "cgql-m": 3.74,
    "cgql-l": 3.83,
    "dsrl": 2.28,
    "fedit": 1.67,
    "fbrac": 2.00,
    "bam": 2.52,
}
BATCHES = {"vine": 512, "qam": 256}  # of a protocol
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
    known = agent if agent in STEPS else "vine"
    rows = config.batch_size / BATCHES[tuned.home(known)]
    relative = STEPS[known] / STEPS["vine"] * rows * SLOWER[config.precision]
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
