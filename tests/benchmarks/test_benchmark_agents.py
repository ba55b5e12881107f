"""`python -m benchmarks agents`."""

import json

from benchmarks import agents, steps
from vinerl.agents import AGENTS


def measured(monkeypatch, capsys, *args):
    """The lines, the table, and the configs that were timed, without timing them."""
    configs = []

    def stacked(config, make, members, data, seconds):
        configs.append(config)
        return {"ms_per_step": 1.0, "ms_per_member": 1 / members}

    monkeypatch.setattr(steps, "stacked", stacked)
    agents.main(list(args))
    said = capsys.readouterr()
    return [json.loads(line) for line in said.out.splitlines()[1:]], said.err, configs


def test_every_agent_as_a_stack_and_three_alone(monkeypatch, capsys):
    rows, _, _ = measured(monkeypatch, capsys)
    timed = [(row["agent"], row["members"]) for row in rows]
    assert timed == [(name, 4) for name in AGENTS] + [("vine", 1), ("fql", 1), ("qam", 1)]


def test_each_has_the_sizes_of_its_own_protocol(monkeypatch, capsys):
    _, _, configs = measured(monkeypatch, capsys, "--agents", "vine,bam")
    vine, bam, _ = configs
    assert (vine.batch_size, vine.critics, vine.critic, vine.discount) == (
        512,
        2,
        "residual",
        0.995,
    )
    assert (bam.batch_size, bam.critics, bam.critic, bam.discount) == (256, 10, "mlp", 0.99)
    assert (vine.alpha, bam.inv_temp) == (10, 30)


def test_a_field_is_set_in_all_and_a_rehearsal_is_small(monkeypatch, capsys):
    args = ["--agents", "rebrac,bam", "--small", "--set", "precision=bfloat16", "--members", "2,3"]
    rows, _, configs = measured(monkeypatch, capsys, *args)
    assert [(row["agent"], row["members"]) for row in rows] == [
        (name, members) for members in (2, 3) for name in ("rebrac", "bam")
    ]
    assert {(c.precision, c.critic_hidden, c.batch_size) for c in configs} == {
        ("bfloat16", (8, 8), 16)
    }


def test_the_table_as_markdown(monkeypatch, capsys):
    _, table, _ = measured(monkeypatch, capsys, "--agents", "bam", "--markdown")
    head, _, row = table.splitlines()
    assert head.startswith("| agent | members | batch | ms_per_step |")
    assert row.startswith("| bam | 4 | 256 | 1 | 0.25 |")
