"""What runs take: measured numbers come out again, and side by side they share one device."""

import json
from pathlib import Path

import pytest

from vinerl.agents import AGENTS
from vinerl.bench.plans import estimate
from vinerl.bench.plans.estimate import Cost
from vinerl.bench.run import jobs

RESULTS = Path(__file__).parents[2] / "results"
TASK = "antmaze-large-navigate-singletask-task1-v0"


def config(agent, **fields):
    fields = {"precision": "bfloat16"} | fields
    return jobs.resolve(jobs.Request(agent=agent, task=TASK, fields=fields)).config


def step(agent, members, **fields):
    """Milliseconds."""
    return estimate.cost(agent, config(agent, **fields), members, 1000).training


@pytest.mark.parametrize(("members", "measured"), [(4, 1.87), (12, 4.02)])
def test_a_step_of_vine_is_as_measured(members, measured):
    assert step("vine", members) / estimate.BESIDE == pytest.approx(measured, rel=0.02)


def test_three_at_once_take_as_long_as_in_their_manifests():
    """VINE in TF32 and in bfloat16, 4 members each, and with Euler's sampler 6; 150k steps."""
    of = lambda members, **fields: estimate.cost("vine", config("vine", **fields), members, 150_000)
    several = [of(4, precision="float32"), of(4), of(6, sampler="euler")]
    assert estimate.over(several, 3) == pytest.approx([1144, 975, 999], rel=0.08)


def test_a_step_takes_longer_with_more_rows_and_more_bits():
    assert step("vine", 4, batch_size=1024) == pytest.approx(2 * step("vine", 4))
    precise = [step("vine", 4, precision=p) for p in ("bfloat16", "float32", "full-float32")]
    assert precise == sorted(precise)


def test_full_float32_beside_two_others_is_as_fast_as_it_was():
    """Two members, a third of the device: 54 steps a second."""
    alone = step("vine", 2, precision="full-float32")
    assert 1000 / alone * estimate.TOGETHER / 3 == pytest.approx(54, rel=0.1)


def test_an_agent_of_ones_own_is_taken_for_vine():
    cfg = config("vine")
    assert estimate.cost("mine.py:MINE", cfg, 4, 100) == estimate.cost("vine", cfg, 4, 100)


def test_every_agent_has_the_step_that_was_measured():
    """VINE's was measured again by itself: 2.20 ms."""
    lines = map(json.loads, (RESULTS / "agents-h200.jsonl").read_text().splitlines())
    four = [line for line in lines if "ms_per_step" in line and line["members"] == 4]
    known = {line["agent"]: line["ms_per_step"] for line in four} | {"vine": 2.20}
    assert set(known) == set(AGENTS)
    assert known == pytest.approx(estimate.STEPS, abs=0.005)
    assert {line["batch"] for line in four} == set(estimate.BATCHES.values())


@pytest.mark.parametrize("agent", ["fql", "cgql-l"])
def test_another_agents_step_is_to_vines_as_measured(agent):
    ratio = step(agent, 6) / step("vine", 6)
    assert ratio == pytest.approx(estimate.STEPS[agent] / 2.20)
    assert step(agent, 6, batch_size=512) == pytest.approx(2 * step(agent, 6))


def test_one_after_another_takes_the_sum():
    assert estimate.over([Cost(1, 10, 2), Cost(1, 20, 2)], 1) == pytest.approx([13, 36])


def test_two_that_train_share_the_device():
    """Together they make 7/6 of the steps of one: each goes at 7/12, and 70 s take 120."""
    assert estimate.over([Cost(5, 70, 9)] * 2, 2) == pytest.approx([134, 134])


def test_whoever_trains_alone_has_all_of_it():
    """The second compiles for 70 s while the first trains, then trains when that is done."""
    assert estimate.over([Cost(0, 70, 0), Cost(70, 7, 3)], 2) == pytest.approx([70, 80])


def test_while_one_evaluates_the_other_is_not_slowed():
    assert estimate.over([Cost(0, 7, 100), Cost(0, 70, 0)], 2) == pytest.approx([112, 12 + 63])


def test_the_next_begins_when_one_has_ended_and_its_data_are_there():
    runs = [Cost(0, 0, 10), Cost(0, 0, 30), Cost(0, 0, 5), Cost(0, 0, 5, wait=40)]
    assert estimate.over(runs, 2) == pytest.approx([10, 30, 15, 45])
    assert estimate.over([], 2) == []
    assert estimate.over([Cost(0, 0, 0)], 1) == [0]
