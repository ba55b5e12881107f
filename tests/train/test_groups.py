"""A stack in groups is the stack: every member exactly once a block, none of them another's."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, assert_close, dataset, tiny
from vinerl.train import groups, offline, pretrain, stack
from vinerl.train.groups import Groups

CONFIG, MAKE = tiny("vine")
AGENT_OF = stack.maker(MAKE, CONFIG, SPEC)


@pytest.mark.parametrize(
    ("members", "most", "devices", "size", "rounds"),
    [
        (8, 4, 1, 4, 2),
        (9, 4, 1, 3, 3),
        (5, 4, 1, 3, 2),
        (5, 1, 1, 1, 5),
        (5, 9, 1, 5, 1),
        (10, 4, 2, 2, 3),
        (8, 5, 4, 1, 2),
    ],
)
def test_groups_are_few_and_about_equal(members, most, devices, size, rounds):
    found = groups.deal(members, most, devices)
    assert found == Groups(devices, members // devices, size)
    assert found.rounds == rounds


def test_each_group_has_its_members_of_every_device():
    """As drawn in the module: the last is filled up with the last of each share."""
    ten, among = jnp.arange(10), groups.deal(10, 4, devices=2)
    taken = [groups.take(ten, among, n).tolist() for n in range(3)]
    assert taken == [[0, 1, 5, 6], [2, 3, 7, 8], [4, 4, 9, 9]]
    assert groups.join([groups.take(ten, among, n) for n in range(3)], among).tolist() == [
        *range(10)
    ]


def test_what_fills_a_group_up_is_not_put_back():
    among = groups.deal(5, 3)
    changed = groups.put(jnp.zeros(5), jnp.float32([7, 8, 9]), among, 1)
    assert changed.tolist() == [0, 0, 0, 7, 8]


def test_a_block_sees_each_member_once_with_what_is_its_own():
    """The block adds a member's own number and the shared one, `steps` times."""
    sizes = []

    def block(x, data, steps):
        sizes.append(len(x))
        return x + steps * (data["own"] + data["shared"]), {"seen": 10 * x}

    data = {"own": jnp.arange(5.0), "shared": jnp.float32(100)}
    axes = {"own": 0, "shared": None}
    split = groups.in_turn(block, groups.deal(5, 2), axes)
    after, seen = split(jnp.float32([1, 2, 3, 4, 5]), data, 2)
    assert after.tolist() == [201, 204, 207, 210, 213]
    assert seen["seen"].tolist() == [10, 20, 30, 40, 50]
    assert sizes == [2, 2, 2]


def test_without_groups_nothing_is_changed():
    block = offline.train_block(AGENT_OF)
    assert groups.in_turn(block, None) is block
    assert groups.each(block, None, 0, None) is block


@pytest.fixture(scope="module")
def both():
    """Five members, alphas among them, after a block of four steps: whole, and in groups of two."""
    config, data = replace(CONFIG, alpha=(1.0, 3.0, 5.0, 7.0, 9.0)), jax.device_put(dataset())
    start = jax.jit(partial(offline.start, AGENT_OF))
    block, diagnose = offline.train_block(AGENT_OF), offline.diagnose(AGENT_OF)
    found = []
    for among in (None, groups.deal(5, 2)):
        runs = start(stack.members(config, seeds=(3,)))
        runs, seen = groups.in_turn(block, among)(runs, data, 4)
        looked = groups.each(diagnose, among, 0, None)(runs, data)
        found.append((runs, seen, looked))
    return found, block


def test_a_stack_in_groups_learns_as_the_whole(both):
    (whole, parts), _ = both
    assert whole[0].state.step.tolist() == parts[0].state.step.tolist() == [4] * 5
    assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    alpha = np.asarray(parts[0].member.floats["alpha"])
    np.testing.assert_array_equal(alpha, [1, 3, 5, 7, 9])


def test_one_program_serves_all_groups(both):
    assert both[1]._cache_size() == 2, "that of the whole, and that of a group"


def test_cloning_in_groups_is_cloning():
    data, members = dataset(), stack.members(CONFIG, seeds=(0, 1, 2))
    first = offline.start(AGENT_OF, members)
    (whole,) = pretrain.clone(AGENT_OF, first, data, 3)
    (parts,) = pretrain.clone(AGENT_OF, first, data, 3, among=groups.deal(3, 2))
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    assert_close(parts.stack, whole.stack, rtol=1e-5, atol=1e-6)
