"""The published numbers against each other, and against our own statistics."""

import numpy as np
import pytest

from vinerl.bench.numbers import reference
from vinerl.bench.numbers.reference import Key, published, published_domain
from vinerl.bench.numbers.stats import bootstrap, overall_mean
from vinerl.bench.run import tasks

IN_PAPER = ["rebrac", "fql", "fawac", "ifql", "qam", "dac", "qsm", "cgql", "cgql-m", "cgql-l"]
IN_PAPER += ["dsrl", "fedit", "fbrac", "bam"]
AGENTS = [*IN_PAPER, "qam-fql", "qam-edit"]
MAZES = ["antmaze-large", "antmaze-giant", "humanoidmaze-medium", "humanoidmaze-large"]
DATASETS = [f"{maze}-navigate" for maze in MAZES]
DATASETS += ["scene-play", "puzzle-3x3-play", "cube-double-play", "cube-triple-play"]
DOMAINS = [tasks.named(f"{name}-singletask-task1-v0").domain for name in DATASETS]
TASKS = [(domain, i) for domain in DOMAINS for i in range(1, 6)]
CELLS = TASKS + [(domain, None) for domain in DOMAINS]


def task(dataset: str, number: int) -> tasks.Task:
    return tasks.named(f"{dataset}-singletask-task{number}-v0")


def percent(key: Key) -> np.ndarray:
    """A row of the paper: mean, low, high."""
    return 100 * np.array(reference.paper_table()[key])


def seeds_of(agent: str) -> np.ndarray:
    """QAM's scores in the cells of the paper's table, [12, 48]."""
    return np.stack([reference.qam_seeds()[Key(agent, *cell)] for cell in CELLS], axis=-1)


def printed_of(agent: str) -> np.ndarray:
    """The same cells as printed: mean, low, high, [3, 48]."""
    return np.stack([percent(Key(agent, *cell)) for cell in CELLS], axis=-1)


def test_names_are_ours_and_nothing_is_missing():
    expected = {Key(agent, *cell) for agent in [*IN_PAPER, "vine"] for cell in CELLS}
    expected |= {Key(agent, "all") for agent in [*IN_PAPER, "vine"]}
    assert set(reference.paper_table()) == expected
    large = ["cube-quadruple-100m", "puzzle-4x4-100m-sparse"]
    domains = {Key(agent, domain) for agent in AGENTS for domain in DOMAINS + large}
    on_tasks = {key._replace(task=i) for key in domains for i in range(1, 6)}
    assert set(reference.qam_seeds()) == domains | on_tasks
    assert set(reference.qam_curves()) == on_tasks
    assert set(reference.qam_aggregates()) == domains | {Key(agent, "all") for agent in AGENTS}


def test_every_printed_mean_of_a_baseline_is_qams_at_the_last_step():
    gaps = [np.abs(100 * seeds_of(a).mean(axis=0) - printed_of(a)[0]) for a in IN_PAPER]
    assert np.size(gaps) == 672
    assert np.max(gaps) <= 0.5 + 1e-9


def test_the_mean_of_the_last_three_evaluations_is_not_what_is_printed():
    curves, table = reference.qam_curves(), reference.paper_table()
    keys = [Key(agent, *cell) for agent in IN_PAPER for cell in TASKS]
    gaps = [abs(curves[key].mean[-3:].mean() - table[key].mean) for key in keys]
    assert np.mean(np.array(gaps) <= 0.005) < 0.7


def test_printed_intervals_are_bootstraps_over_seeds():
    """Domains by the 12 domain scores. Resampling explains what is left, most on wide intervals."""
    found = [100 * bootstrap(seeds_of(agent)) for agent in IN_PAPER]
    gaps = np.abs(np.array(found) - [printed_of(agent)[1:] for agent in IN_PAPER]).max(axis=1)
    on_tasks, on_domains = gaps[:, : len(TASKS)], gaps[:, len(TASKS) :]
    assert on_domains.max() < 0.6
    assert on_tasks.max() < 1.4
    assert np.sum(on_tasks > 1 + 1e-9) <= 6


def test_a_domain_is_its_five_tasks_in_the_mean_but_not_seed_by_seed():
    seeds = reference.qam_seeds()
    domains = [key for key in seeds if key.task is None]
    stacked = {k: np.stack([seeds[k._replace(task=i)] for i in range(1, 6)]) for k in domains}
    assert all(abs(stacked[k].mean() - seeds[k].mean()) < 1e-9 for k in domains)
    for key in domains:
        if np.sum(stacked[key].std(axis=1) > 0) > 1:  # else any order gives the same means
            assert not np.allclose(stacked[key].mean(axis=0), seeds[key])


def test_aggregates_are_the_domains_seeds_and_all_is_the_forty_tasks():
    for key, score in reference.qam_aggregates().items():
        if key.domain == "all":
            means = [reference.qam_seeds()[Key(key.agent, *cell)].mean() for cell in TASKS]
            assert score.mean == pytest.approx(np.mean(means), abs=6e-5)
            assert np.isnan(score.low)
            continue
        scores = reference.qam_seeds()[key]
        assert score.mean == pytest.approx(scores.mean(), abs=6e-5)
        assert [score.low, score.high] == pytest.approx(bootstrap(scores).tolist(), abs=0.005)


def test_qams_two_variants_are_not_exchanged():
    """QAM-E, which edits the flow's action, has 51.4 on the eight domains, QAM-F has 54.2."""
    means = {a: reference.qam_aggregates()[Key(a, "all")].mean for a in ("qam-edit", "qam-fql")}
    assert means == pytest.approx({"qam-edit": 0.514, "qam-fql": 0.542}, abs=5e-4)


def test_printed_intervals_of_all_are_bootstraps_over_tasks_save_vines():
    for agent in IN_PAPER:
        means = [reference.qam_seeds()[Key(agent, *cell)].mean() for cell in TASKS]
        found = 100 * np.array(overall_mean(np.array(means)))
        assert found[0] == pytest.approx(percent(Key(agent, "all"))[0], abs=0.5 + 1e-9)
        assert found[1:] == pytest.approx(percent(Key(agent, "all"))[1:], abs=1.5)
    vine = np.array([reference.paper_table()[Key("vine", *cell)].mean for cell in TASKS])
    assert np.round(100 * np.array(overall_mean(vine))).tolist() == [60, 47, 72]
    assert percent(Key("vine", "all")).tolist() == pytest.approx([60, 55, 65])


def test_vine_is_alone_at_the_top_of_14_tasks_and_shares_4():
    means = lambda agent: np.array([percent(Key(agent, *cell))[0] for cell in TASKS])
    lead = np.round(means("vine") - np.max([means(agent) for agent in IN_PAPER], axis=0))
    assert (np.sum(lead > 0), np.sum(lead == 0)) == (14, 4)


def test_curves_end_in_the_seeds_and_lie_within_their_intervals():
    for key, curve in reference.qam_curves().items():
        assert curve.steps.tolist() == list(range(50_000, 1_000_001, 50_000))
        scores = reference.qam_seeds()[key]
        assert curve.mean[-1] == pytest.approx(scores.mean(), abs=6e-5)
        assert np.all(curve.low <= curve.mean)
        assert np.all(curve.mean <= curve.high)


def test_a_baselines_task_has_seeds_at_the_end_and_an_interval_on_the_way():
    end = published("rebrac", task("antmaze-large-navigate", 1))
    assert end
    assert end.seeds is not None
    assert end.score.mean == pytest.approx(end.seeds.mean(), abs=6e-5)
    assert np.round(100 * np.array(end.score)).tolist() == [98, 97, 99]
    assert end.origin == reference.ORIGIN["qam_curves"]
    way = published("bam", task("antmaze-large-navigate", 1), 100_000)
    assert way
    assert way.score == pytest.approx((0.7067, 0.65, 0.755))
    assert way.seeds is None


def test_vines_numbers_are_the_papers():
    found = published("vine", task("antmaze-giant-navigate", 3))
    assert found == ((0.51, 0.40, 0.62), None, reference.PAPER)
    assert published_domain("vine", "scene-sparse") == ((0.73, 0.60, 0.85), None, reference.PAPER)
    assert published_domain("qam", "all") == ((0.55, 0.42, 0.68), None, reference.PAPER)


def test_a_domain_has_its_own_seeds():
    found = published_domain("qam-edit", "cube-double")
    assert found
    assert found.seeds is not None
    assert found.score.mean == pytest.approx(found.seeds.mean(), abs=6e-5)
    assert found.origin == reference.ORIGIN["qam_aggregates"]


@pytest.mark.parametrize(
    ("agent", "dataset", "step"),
    [
        ("vine", "antmaze-large-navigate", 500_000),
        ("qam", "antmaze-large-navigate", 20_000),
        ("qam", "antmaze-large-navigate", 1_500_000),
        ("qam", "antmaze-large-stitch", 1_000_000),
        ("qam", "puzzle-4x4-play", 1_000_000),
        ("qam", "cube-quadruple-play", 1_000_000),
        ("rlpd", "antmaze-large-navigate", 1_000_000),
    ],
)
def test_what_nobody_published_is_not_made_up(agent, dataset, step):
    assert published(agent, task(dataset, 1), step) is None


def test_every_table_says_where_it_comes_from():
    folder = reference.resources.files("vinerl.bench.numbers").joinpath("published")
    readme = folder.joinpath("README.md").read_text()
    names = [file.name for file in folder.iterdir() if file.name.endswith(".csv")]
    assert sorted(names) == sorted(f"{name}.csv" for name in reference.ORIGIN)
    assert all(f"`{name}`" in readme for name in names)
