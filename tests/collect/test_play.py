"""Manipulation episodes: those of OGBench's own environments and oracles, whoever makes them."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

from vinerl.collect import play
from vinerl.collect.play import Play
from vinerl.collect.recipes import Recipe
from vinerl.envs import ogbench

NUMBER = 4  # with another chance of stacking, cube-double's second target would be another here
DOMAINS = ("cube-double", "scene", "puzzle-3x3")
PLANS = {
    "cube": CubePlanOracle,
    "button": ButtonPlanOracle,
    "drawer": DrawerPlanOracle,
    "window": WindowPlanOracle,
}


def recipe(domain, rows=130, **changes):
    return Recipe(f"{domain}-play-v0", f"{domain}-v0", "play", 3, rows, noise=0.1, **changes)


@pytest.fixture(scope="module")
def plays():
    """One maker a domain, used by many tests one after another."""
    return {domain: Play(recipe(domain)) for domain in DOMAINS}


@pytest.fixture(scope="module")
def known(plays):
    """Each domain's episode, after another one."""
    return {domain: (maker.episode(7), maker.episode(NUMBER))[1] for domain, maker in plays.items()}


def same(a, b):
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name]) for name in a
    )


def plainly(domain, seed, stacking, rows):
    """An episode through Gymnasium's public interface alone."""
    limits = {"terminate_at_goal": False, "max_episode_steps": rows}
    env = ogbench.make(f"{domain}-v0", mode="data_collection", **limits)
    shut = {"gripper_always_closed": True} if "puzzle" in domain else {}
    plan = lambda kind: PLANS[kind](env=env, noise=0.1, noise_smoothing=0.5, **shut)
    oracles = {}
    np.random.seed(seed)
    obs, info = env.reset(seed=seed)
    seen, oracle, over = [], None, False
    while not over:
        if oracle is None or oracle.done:
            told = info
            if oracle is not None:
                _, told = env.unwrapped.set_new_target(p_stack=stacking)
            kind = told["privileged/target_task"]
            oracle = oracles.setdefault(kind, plan(kind))
            oracle.reset(obs, told)
        action = np.clip(oracle.select_action(obs, info), -1, 1)
        after, _, terminated, over, info = env.step(action)
        assert not terminated
        state = {"qpos": info["prev_qpos"], "qvel": info["prev_qvel"]}
        if "prev_button_states" in info:
            state["button_states"] = info["prev_button_states"]
        seen.append({"observations": obs, "actions": action, "terminals": over} | state)
        obs = after
    kinds = {"terminals": bool, "button_states": np.int64}
    return {
        name: np.array([row[name] for row in seen], kinds.get(name, np.float32)) for name in seen[0]
    }


@pytest.mark.parametrize(
    ("domain", "chances"),
    [("cube-double", (0, 0.25)), ("scene", (0.5, 0.5)), ("puzzle-3x3", (0.5, 0.5))],
)
def test_an_episode_is_that_of_the_plain_environment(known, domain, chances):
    """Bit for bit, beyond the first target."""
    arrays, facts = known[domain]
    draw = np.random.default_rng([0, NUMBER])
    seed, stacking = int(draw.integers(2**31)), draw.uniform(*chances)
    assert facts["goals"] >= 1
    assert facts["redrawn"] == 0
    assert same(arrays, plainly(domain, seed, stacking, rows=130))


@pytest.mark.parametrize("domain", DOMAINS)
def test_an_episode_does_not_depend_on_those_before_it(known, domain):
    """Nor on what others do with NumPy's global generator."""
    np.random.seed(99)
    assert same(known[domain][0], Play(recipe(domain)).episode(NUMBER)[0])


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_an_episode_is_the_same_in_another_process(plays, monkeypatch, domain):
    """There it is the first thing done, and here it comes after a long other one."""
    long = recipe(domain, rows=1001)
    monkeypatch.setattr(plays[domain], "recipe", long)
    plays[domain].episode(5)
    arrays, _ = plays[domain].episode(6)
    code = """if True:
        import hashlib, json, sys
        from vinerl.collect.play import Play
        from vinerl.collect.recipes import Recipe
        arrays, _ = Play(Recipe(**json.loads(sys.argv[1]))).episode(6)
        print({n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()})
    """
    command = [sys.executable, "-c", code, long.to_json()]
    there = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    here = {n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()}
    assert json.loads(there.replace("'", '"')) == here


def test_seed_and_number_make_the_difference(plays, known, monkeypatch):
    maker, first = plays["puzzle-3x3"], known["puzzle-3x3"][0]["observations"][0]
    for seed, number in ((0, NUMBER + 1), (1, NUMBER)):
        monkeypatch.setattr(maker, "recipe", recipe("puzzle-3x3", rows=1, seed=seed))
        other = maker.episode(number)[0]["observations"][0]
        assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("domain", "sizes", "buttons"),
    [("cube-double", (37, 28, 26), 0), ("scene", (40, 25, 24), 2), ("puzzle-3x3", (55, 23, 23), 9)],
)
def test_the_arrays_are_those_of_ogbenchs_files(known, domain, sizes, buttons):
    arrays, _ = known[domain]
    obs, nq, nv = sizes
    expected = {"observations": obs, "actions": 5, "qpos": nq, "qvel": nv}
    kinds: dict = {name: ((130, size), np.float32) for name, size in expected.items()}
    kinds["terminals"] = (130,), bool
    if buttons:
        kinds["button_states"] = (130, buttons), np.int64
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == kinds
    assert np.flatnonzero(arrays["terminals"]).tolist() == [129]
    assert np.abs(arrays["actions"]).max() <= 1


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_columns_of_a_row_show_the_same_moment(known, domain):
    """An observation begins with the arm's joints and has each button's state as two numbers."""
    arrays, _ = known[domain]
    np.testing.assert_array_equal(arrays["observations"][:, :6], arrays["qpos"][:, :6])
    np.testing.assert_array_equal(arrays["observations"][:, 6:12], arrays["qvel"][:, :6])
    first = {"scene": 28, "puzzle-3x3": 19, "cube-double": 37}[domain]
    for i, states in enumerate(arrays.get("button_states", np.zeros((0, 0))).T):
        shown = arrays["observations"][:, first + 4 * i : first + 4 * i + 2]
        np.testing.assert_array_equal(shown, np.eye(2)[states])


def test_a_target_done_with_is_a_button_pressed():
    """Without noise a plan presses its button once, half way; the last plan is cut off."""
    arrays, facts = Play(replace(recipe("puzzle-3x3", rows=300), noise=0.0)).episode(0)
    presses = int(np.any(np.diff(arrays["button_states"], axis=0), axis=1).sum())
    assert facts["goals"] >= 5
    assert presses - facts["goals"] in (0, 1)


def test_an_unhealthy_episode_is_drawn_again(plays, known, monkeypatch):
    verdicts, drawn = iter([False, False, True, False, False, True]), []
    monkeypatch.setattr(play, "healthy", lambda qpos: drawn.append(qpos) or next(verdicts))
    monkeypatch.setattr(plays["scene"], "recipe", recipe("scene", rows=20))
    arrays, facts = plays["scene"].episode(NUMBER)
    assert facts["redrawn"] == 2
    assert len({qpos.tobytes() for qpos in drawn}) == 3
    assert np.array_equal(drawn[0], known["scene"][0]["qpos"][:20])
    assert arrays["qpos"] is drawn[2]
    assert same(arrays, plays["scene"].episode(NUMBER)[0])


def test_only_a_scene_has_a_cube_to_lose(plays, monkeypatch):
    monkeypatch.setattr(play, "healthy", lambda qpos: False)
    monkeypatch.setattr(plays["puzzle-3x3"], "recipe", recipe("puzzle-3x3", rows=20))
    assert plays["puzzle-3x3"].episode(NUMBER)[1]["redrawn"] == 0


@pytest.mark.parametrize(
    ("y", "z", "well"),
    [
        (0.0, 0.02, True),
        (0.28, 0.02, True),
        (0.29, 0.02, False),
        (0.4, 0.07, False),
        (-0.29, 0.02, True),
        (-0.31, 0.07, True),  # in the drawer
        (-0.31, 0.059, False),
        (-0.31, 0.081, False),
    ],
)
def test_where_a_cube_may_be(y, z, well):
    """One row decides."""
    qpos = np.zeros((5, 25))
    qpos[3, 15:17] = y, z
    assert play.healthy(qpos) == well


@pytest.mark.parametrize(
    ("size", "low", "high"),
    [("single", 0, 0), ("double", 0, 0.25), ("triple", 0.05, 0.35), ("quadruple", 0.1, 0.5)],
)
def test_the_chance_of_stacking_is_drawn_for_each_episode(plays, monkeypatch, size, low, high):
    maker, drawn = plays["cube-double"], []
    monkeypatch.setattr(maker, "recipe", recipe(f"cube-{size}"))
    monkeypatch.setattr(maker, "_attempt", lambda _, stacking: (drawn.append(stacking), 0))
    for number in range(200):
        maker.episode(number)
    np.testing.assert_allclose([min(drawn), max(drawn)], [low, high], atol=0.01)
    assert np.mean(drawn) == pytest.approx((low + high) / 2, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "size"),
    [
        ("cube-single", 28),
        ("cube-triple", 46),
        ("cube-quadruple", 55),
        ("puzzle-4x4", 83),
        ("puzzle-4x5", 99),
        ("puzzle-4x6", 115),
    ],
)
def test_the_other_domains_work_too(domain, size):
    arrays, _ = Play(recipe(domain, rows=20)).episode(0)
    assert arrays["observations"].shape == (20, size)
    assert np.isfinite(arrays["observations"]).all()
