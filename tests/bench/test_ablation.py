"""What the ablation says of cells made by hand."""

import json

import numpy as np
import pytest

from cells import publish
from vinerl import cli
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.studies import ablation, ablation_page

ANT = "antmaze-large-navigate-singletask-task2-v0"
QUEUE = f"""
[ablation-sampler]
tasks = ["{ANT}"]
seeds = [0, 1]
steps = 1000
common = {{ precision = "bfloat16" }}
grid = [
  {{ sampler = "vine", regulariser = "flow" }},
  {{ sampler = "euler", regulariser = "flow" }},
  {{ sampler = "vine", regulariser = "endpoint", noise = 0.0 }},
]
[ablation-sampler.alpha]
antmaze-large = [3.0, 10.0, 30.0]

[chunks]
tasks = ["{ANT}"]
seeds = [0]
steps = 1000
grid = [{{ horizon = 5 }}]
"""


def told(spread=0.1, largest: float | None = 7.0, estimate=2.0, first=0.5):
    """A run's metrics; the values before the last tell whether it is the last or the largest."""
    return {
        "actor/spread": {"step": [1, 2], "value": [9.0, spread]},
        "grad_norm/actor_max": {"step": [1, 2], "value": [largest, 1.0]},
        "actor/estimate_max": {"step": [1, 2], "value": [estimate, 1.0]},
        "grad_norm/step": [0.0, first, 3.0],
    }


def add(
    folder, sampler, alpha, scores, way=None, metrics=None, first=0, data=None, cut=None, **fields
):
    """Of the length that the queue asks for, or cut off after so many steps."""
    fields = {"regulariser": "flow", "precision": "bfloat16"} | fields
    fields |= {"sampler": sampler, "alpha": alpha}
    scores = dict(enumerate(scores, start=first))
    recipe = {"data": data} if data else {}
    steps, metrics = cut or 1000, metrics or told()
    publish(folder, "vine", ANT, steps, scores, way, fields, metrics, not cut, **recipe)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "queue.toml").write_text(QUEUE)
    return tmp_path


def block(folder):
    (found,) = ablation.blocks(folder)
    return found


def page(folder):
    return ablation_page.markdown(ablation.blocks(folder)).splitlines()


def test_nothing_published_is_a_table_of_missing_cells(folder):
    rows = [line for line in page(folder) if line.startswith(("| vine", "| euler"))]
    assert rows == [
        "| vine | flow |  |" + " – |" * 7,
        "| euler | flow |  |" + " – |" * 7,
        "| vine | endpoint | noise 0.0 |" + " – |" * 7,
    ]
    assert "Differences looked at: 0, 0 of them with no 0 in their interval." in page(folder)
    assert ablation.cost(folder).startswith("nothing is trained: 0 of 9 cells")


def test_the_best_alpha_is_that_of_the_highest_success_at_the_end(folder):
    add(folder, "vine", 3.0, [0.2, 0.4])
    add(folder, "vine", 30.0, [0.4, 0.6])
    assert block(folder).variants[0].best == 30.0
    add(folder, "vine", 10.0, [0.5, 0.7], {500: 0.0})
    assert block(folder).variants[0].best == 10.0


def test_of_equal_ends_the_higher_curve_is_best(folder):
    for alpha, height in ((3.0, 0.3), (10.0, 0.8), (30.0, 0.1)):
        add(folder, "vine", alpha, [0.9, 0.9], {500: height})
    assert block(folder).variants[0].best == 10.0


def test_a_row_has_the_last_spread_the_first_gradient_and_what_was_largest(folder):
    add(folder, "vine", 3.0, [0.4, 0.8], metrics=told(0.25, 70.0, 5.0, 0.125))
    add(folder, "vine", 10.0, [0.1, 0.1], metrics=told(estimate=99.0))
    (row,) = [line for line in page(folder) if line.startswith("| vine | flow")]
    assert row == (
        "| vine | flow |  | 3 (of 2, 1 missing) | 2 | 0.60 [0.40, 0.80] | 0.25 | 0.12 | 70 | 5 |"
    )


def test_what_was_not_finite_is_said_and_what_is_not_told_is_missing(folder):
    metrics = told(largest=None)
    del metrics["actor/spread"]
    add(folder, "euler", 3.0, [0.5, 0.5], metrics=metrics)
    (row,) = [line for line in page(folder) if line.startswith("| euler")]
    assert row.endswith("| 0.50 [0.50, 0.50] | – | 0.5 | not finite | 2 |")


def test_differences_are_taken_seed_by_seed(folder):
    """Best alphas 10 and 3: 0.2 on both seeds. Over both alphas: (0.4 - 0.3, 0.5 - 0.4)."""
    add(folder, "vine", 3.0, [0.1, 0.2])
    add(folder, "vine", 10.0, [0.7, 0.8])
    add(folder, "euler", 3.0, [0.5, 0.6])
    add(folder, "euler", 10.0, [0.1, 0.2])
    add(folder, "euler", 30.0, [0.0, 0.0])
    best, mean = ablation.gaps(block(folder))
    assert (best.at, best.seeds, best.chance) == ("best: 10 and 3", 2, 0.5)
    assert np.array(best.difference) == pytest.approx([0.2, 0.2, 0.2])
    assert (mean.at, mean.seeds) == ("mean of 3, 10", 2)
    assert np.array(mean.difference) == pytest.approx([0.1, 0.1, 0.1])
    words = "Differences looked at: 2, 2 of them with no 0 in their interval."
    assert any(line.startswith(words) for line in page(folder))


def test_regularisers_are_compared_under_one_sampler_and_with_nothing_else_changed(folder):
    """(0.9 - 0.4, 0.8 - 0.5) at their best; over both alphas (0.5 - 0.3, 0.6 - 0.3)."""
    plain = '{ sampler = "vine", regulariser = "endpoint" },'
    (folder / "queue.toml").write_text(QUEUE.replace("grid = [\n", f"grid = [\n  {plain}\n", 1))
    for alpha, endpoint, flow in ((3.0, [0.9, 0.8], [0.2, 0.1]), (10.0, [0.1, 0.4], [0.4, 0.5])):
        add(folder, "vine", alpha, endpoint, regulariser="endpoint")
        add(folder, "vine", alpha, flow)
    add(folder, "vine", 3.0, [0.0, 0.0], regulariser="endpoint", noise=0.0)
    best, mean = ablation.gaps(block(folder))
    assert (best.what, best.under, best.at) == ("endpoint less flow", "vine", "best: 3 and 10")
    assert np.array(best.difference) == pytest.approx([0.4, 0.3, 0.5])
    assert mean.at == "mean of 3, 10"
    assert float(mean.difference.value) == pytest.approx(0.25)


def test_only_seeds_that_both_have_are_compared(folder):
    add(folder, "vine", 3.0, [0.1, 0.2, 1.0, 1.0])
    add(folder, "euler", 3.0, [0.3, 0.4])
    (gap,) = ablation.gaps(block(folder))
    assert gap.seeds == 2
    assert float(gap.difference.value) == pytest.approx(-0.2)


def test_only_seeds_that_the_queue_asks_for_count(folder):
    """Four more at one alpha, with other numbers, change nothing; alone they are no cell."""
    add(folder, "vine", 10.0, [0.9, 0.9, 0.1, 0.1, 0.1, 0.1])
    add(folder, "vine", 30.0, [0.8, 0.8])
    add(folder, "vine", 3.0, [1.0], first=9)
    variant = block(folder).variants[0]
    assert (variant.best, set(variant.there)) == (10.0, {10.0, 30.0})
    assert variant.there[10.0].scores.tolist() == [0.9, 0.9]
    add(folder, "euler", 3.0, [0.9, 0.9])
    (gap,) = ablation.gaps(block(folder))
    assert float(gap.difference.value) == 0.0


def test_without_a_common_seed_there_is_no_difference(folder):
    add(folder, "vine", 3.0, [0.9])
    add(folder, "euler", 3.0, [0.5], first=1)
    assert len(block(folder).variants[1].there) == 1
    assert ablation.gaps(block(folder)) == []


def test_other_configs_and_other_phases_are_not_the_queues(folder):
    add(folder, "vine", 3.0, [0.5], tau=0.01)
    fields = {"sampler": "vine", "regulariser": "flow", "alpha": 3.0, "precision": "bfloat16"}
    publish(folder, "vine", ANT, 1000, {0: 0.5}, fields=fields, pretrain=100)
    publish(folder, "vine", ANT, 2000, {0: 0.5}, fields=fields)
    assert not any(variant.there for variant in block(folder).variants)


def test_a_difference_by_rounding_alone_has_0_in_its_interval():
    tiny = ablation.Gap("a", "b", "c", 2, Estimate(2.8e-17, 2.8e-17, 2.8e-17), 1.0)
    assert "Differences looked at: 1, 0 of them" in ablation_page.counted([tiny])


def test_the_coins_chance_by_hand():
    """Of eight signs of (1, 1, 1) two are as far out; (2, 1, -1) reaches 2 with all but two."""
    assert ablation.coin(np.array([1.0, 1.0, 1.0])) == 2 / 8
    assert ablation.coin(np.array([2.0, 1.0, -1.0])) == 6 / 8
    assert ablation.coin(np.array([0.0, 0.0])) == 1
    assert ablation.coin(np.array([0.3])) == 1


def test_the_command_writes_lines_tables_and_a_picture(folder, capsys):
    words = ["reproduce", "ablation", "--folder", str(folder), "--out", str(folder / "out")]
    cli.main(words)
    assert not (folder / "out" / "ablation.png").exists()
    add(folder, "vine", 3.0, [0.5, 0.75])
    add(folder, "euler", 3.0, [0.5, 0.25], metrics=told(largest=None))
    cli.main(words)
    assert (
        "| VINE less Euler | flow | best: 3 and 3 | 2 | +0.25 [+0.00, +0.50] | 1 |"
        in capsys.readouterr().out
    )
    lines = (folder / "out" / "ablation.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [(x["sampler"], x["seed"], x["success"], x["gradient"]) for x in found] == [
        ("vine", 0, 0.5, 7.0),
        ("vine", 1, 0.75, 7.0),
        ("euler", 0, 0.5, None),
        ("euler", 1, 0.25, None),
    ]
    for name in ("ablation", "success"):
        assert (folder / "out" / f"{name}.png").stat().st_size > 5000


def test_where_runs_were_cut_off_all_are_compared_after_the_last_evaluation_of_each(folder):
    """After 400 of 1000 steps: 0.7 less 0.5 at the best alphas, whatever came after it."""
    late = {
        "actor/spread": {"step": [300, 400, 500], "value": [0.3, 0.4, 0.5]},
        "grad_norm/actor_max": {"step": [300, 400, 500], "value": [3.0, 4.0, 500.0]},
        "grad_norm/step": [0.0, 0.5, 3.0],
    }
    add(folder, "vine", 3.0, [0.9, 1.0], {400: 0.7, 800: 0.8}, late)
    add(folder, "euler", 3.0, [0.1, 0.3], {200: 0.0}, late, cut=400)
    add(folder, "euler", 10.0, [0.6, 0.6], {200: 0.5, 400: 0.5}, cut=600)
    whole, short = ablation.blocks(folder)
    assert (whole.steps, whole.of, ablation.gaps(whole)) == (1000, None, [])
    assert ablation.measures(whole.variants[0].there[3.0])["gradient"].tolist() == [500.0, 500.0]
    assert [sorted(variant.there) for variant in short.variants] == [[3.0], [3.0, 10.0], []]
    assert (short.steps, short.of) == (400, 1000)
    best, *_ = gaps = ablation.gaps(short)
    assert len(gaps) == 1
    assert best.at == "best: 3 and 10"
    assert float(best.difference.value) == pytest.approx(0.7 - 0.5)
    (row,) = [r for r in ablation_page.markdown([short]).splitlines() if r.startswith("| vine | f")]
    assert row.endswith("| 0.70 [0.70, 0.70] | 0.4 | 0.5 | 4 | – |")
    assert f"## ablation-sampler: {ANT}, 0.4k of 1k steps" in page(folder)
    assert {line.get("of") for line in ablation.lines([whole, short])} == {None, 1000}
    assert ablation.cost(folder).startswith("nothing is trained: 1 of 9 cells")


def test_a_run_that_was_cut_off_is_not_looked_at_once_it_is_there_whole(folder):
    add(folder, "vine", 3.0, [0.4, 0.5], {200: 0.3}, cut=400)
    assert len(ablation.blocks(folder)) == 1, "there is nothing to compare it with"
    add(folder, "euler", 3.0, [0.4, 0.5], {200: 0.3, 400: 0.3})
    assert len(ablation.blocks(folder)) == 2
    add(folder, "vine", 3.0, [0.9, 1.0])
    assert len(ablation.blocks(folder)) == 1


@pytest.mark.parametrize("seeds", [1, 3])
def test_what_was_cut_off_on_other_data_is_left_out(folder, seeds):
    """Wherever most seeds are."""
    add(folder, "vine", 3.0, [0.4, 0.5], {200: 0.3})
    other = {"origin": "mine", "sha256": "e" * 64}
    add(folder, "euler", 3.0, [0.4] * seeds, {200: 0.3}, cut=400, data=other)
    assert len(ablation.blocks(folder)) == 1


def test_runs_are_cut_where_all_of_them_were_evaluated(folder):
    """200, 400 and 600 of one, 300 and 600 of the other, which went on to 900."""
    add(folder, "vine", 3.0, [0.8, 0.8], {200: 0.1, 400: 0.3}, cut=600)
    add(folder, "euler", 3.0, [0.9, 0.9], {300: 0.1, 600: 0.5, 900: 0.7})
    _, short = ablation.blocks(folder)
    assert short.steps == 600
    assert float(ablation.gaps(short)[0].difference.value) == pytest.approx(0.8 - 0.5)


def test_runs_that_were_never_evaluated_after_the_same_step_are_not_compared(folder):
    add(folder, "vine", 3.0, [0.8, 0.8], {200: 0.1}, cut=400)
    add(folder, "euler", 3.0, [0.9, 0.9], {300: 0.1, 900: 0.7})
    add(folder, "euler", 10.0, [0.9, 0.9])  # never on its way
    assert len(ablation.blocks(folder)) == 1


def test_a_log_that_begins_after_the_cut_tells_nothing_of_it(folder):
    late = {"actor/spread": {"step": [900], "value": [0.5]}}
    late |= {"grad_norm/actor_max": {"step": [900], "value": [7.0]}}
    add(folder, "vine", 3.0, [0.8, 0.8], {200: 0.1}, cut=400)
    add(folder, "euler", 3.0, [0.9, 0.9], {400: 0.7}, late)
    _, short = ablation.blocks(folder)
    seen = ablation.measures(short.variants[1].there[3.0])
    assert all(np.isnan(seen[name]).all() for name in ("spread", "gradient", "estimate"))


def test_cells_on_other_data_are_not_compared(folder):
    other = {"origin": "mine", "sha256": "e" * 64}
    add(folder, "vine", 10.0, [0.5, 0.5])
    add(folder, "euler", 10.0, [0.1], data=other)
    vine, euler, _ = block(folder).variants
    assert (len(vine.there), len(euler.there)) == (1, 0)
    add(folder, "euler", 3.0, [0.1, 0.1], data=other)
    vine, euler, _ = block(folder).variants
    assert (len(vine.there), sorted(euler.there)) == (0, [3.0, 10.0])


def test_a_section_on_a_second_set_of_data_has_the_cells_of_that_set(folder):
    """Each has fewer seeds than the other somewhere, and neither takes the other's."""
    second = QUEUE.split("[chunks]")[0].replace("ablation-sampler", "again") + "[chunks]"
    second = second.replace("steps = 1000", "steps = 1000\ndata_seed = 1")
    (folder / "queue.toml").write_text(
        second + QUEUE.split("[chunks]")[1] + QUEUE.split("[chunks]")[0]
    )
    data = [{"recipe": {"seed": seed}, "mujoco": "3.2.7"} for seed in (0, 1)]
    add(folder, "vine", 3.0, [0.1, 0.2, 0.3], data=data[0])
    add(folder, "vine", 3.0, [0.7, 0.9], data=data[1])
    again, usual = (found.variants[0].there[3.0] for found in ablation.blocks(folder))
    assert again.scores.tolist() == [0.7, 0.9]
    assert usual.scores.tolist() == [0.1, 0.2]  # the seeds that are asked for
