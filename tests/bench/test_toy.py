"""The toy: its problem in closed form, a quick run of it, and its page."""

import json
import re
import shutil
import subprocess

import jax
import numpy as np
import pytest

from vinerl.bench.studies import pentagon, toy, toy_figure, toy_page
from vinerl.bench.studies.pentagon import MODES, REWARDS
from vinerl.bench.studies.toy import ALPHAS, QUICK, SEEDS, Setting
from vinerl.errors import InputError
from vinerl.flow import samplers

BEHAVIOUR_SPREAD = (0.8**2 / 2 + 0.05**2) ** 0.5  # of a coordinate, over pentagon and mode


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A quick run: its folder, the files it says it made, what it showed."""
    out, said = tmp_path_factory.mktemp("toy"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(toy_figure.STYLE, "figure.dpi", 40)
        files = toy.reproduce(out, quick=True, show=said.append)
    return out, files, said


@pytest.fixture(scope="module")
def lines(run):
    return toy.read(run[0] / "toy.jsonl", QUICK)


def test_modes_are_a_pentagon_worth_one_down_to_a_fifth():
    """The other modes' bumps add less than .0002: neighbours are 1.6 sin 36 degrees = .94 apart."""
    np.testing.assert_allclose(MODES[0], [0, 0.8], atol=1e-6)
    sides = np.linalg.norm(MODES - np.roll(MODES, 1, axis=0), axis=1)
    np.testing.assert_allclose(sides, 1.6 * np.sin(np.pi / 5), rtol=1e-5)
    np.testing.assert_allclose(pentagon.value(MODES), [1, 0.8, 0.6, 0.4, 0.2], atol=2e-4)
    beside = MODES + np.array([0.2, 0], np.float32)
    np.testing.assert_allclose(pentagon.value(beside), REWARDS * np.exp(-0.5), atol=1e-3)


def test_data_have_every_mode_equally_often():
    action = pentagon.data(jax.random.key(0), 5000)
    nearest = pentagon.distances(action).argmin(axis=1)
    assert np.bincount(nearest).tolist() == [1000] * 5
    np.testing.assert_allclose(action.mean(axis=0), 0, atol=5e-3)
    np.testing.assert_allclose(action.std(axis=0), BEHAVIOUR_SPREAD, rtol=0.01)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_a_small_weight_of_the_endpoint_term_leaves_a_point_by_the_best_mode(alpha):
    """On the line to it the slope vanishes: alpha r = 25 (.8 - r) exp(-(.8 - r)^2 / .08)."""
    x, r = pentagon.collapsed(alpha)
    assert abs(x) < 0.006
    slope = lambda r: alpha * r - 25 * (0.8 - r) * np.exp(-((0.8 - r) ** 2) / 0.08)
    assert slope(r - 0.006) < 0 < slope(r + 0.006)


def test_a_large_weight_of_the_endpoint_term_leaves_the_empty_middle():
    np.testing.assert_allclose(pentagon.collapsed(10.0), 0, atol=0.006)


def test_weights_survive_json_to_four_digits():
    params = pentagon.fresh(QUICK, 0)
    layers = json.loads(json.dumps(pentagon.to_layers(params)))
    assert [np.shape(layer["kernel"]) for layer in layers] == [(3, 16), (16, 16), (16, 2)]
    again = pentagon.from_layers(layers)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=5.1e-4), again, params)
    assert pentagon.to_layers(again) == layers


def test_every_setting_has_its_numbers(lines):
    behaviour = {Setting("behaviour", s, 0.0, 0) for s in ("euler", "vine", "ddpm")}
    tuned = {
        Setting(policy, sampler, alpha, 0)
        for policy in ("endpoint", "flow", "teacher")
        for sampler in ("vine", "euler")
        for alpha in ALPHAS
    }
    assert lines.keys() == behaviour | tuned
    for line in lines.values():
        assert np.isfinite([line[name] for name in toy.COLUMNS]).all()
        assert len(line["gradient"]) == pentagon.K + 1
        assert line["near"] == pytest.approx(sum(line["modes"]), abs=1e-4)


@pytest.mark.parametrize("sampler", ["vine", "euler"])
def test_the_endpoint_term_loses_the_modes_and_the_others_keep_them(lines, sampler):
    one = lambda policy, alpha: lines[Setting(policy, sampler, alpha, 0)]
    for alpha in ALPHAS:
        assert one("endpoint", alpha)["spread"] < 0.1
    assert one("endpoint", 1.0)["value"] > 0.9
    assert one("endpoint", 10.0)["value"] < 0.02
    np.testing.assert_allclose(one("endpoint", 10.0)["mean"], pentagon.collapsed(10.0), atol=0.1)
    begun = lines[Setting("behaviour", sampler, 0.0, 0)]
    for policy in ("flow", "teacher"):
        assert one(policy, 10.0)["spread"] > 0.8 * begun["spread"]
        assert one(policy, 1.0)["value"] > 1.5 * begun["value"]


def test_cloning_comes_near_the_data(lines):
    """Little is learned in a quick run; Euler and VINE run the same network, DDPM its own."""
    euler, vine, ddpm = (lines[Setting("behaviour", s, 0.0, 0)] for s in ("euler", "vine", "ddpm"))
    assert euler["weights"] == vine["weights"] != ddpm["weights"]
    for line in (euler, ddpm):
        assert line["spread"] == pytest.approx(BEHAVIOUR_SPREAD, rel=0.2)


def test_no_gradient_reaches_what_vine_forgets(lines):
    for setting, line in lines.items():
        assert (line["gradient"][0] == 0) == (setting.sampler == "vine")


def test_a_finished_run_is_only_drawn_again(run, monkeypatch):
    out, files, _ = run
    before = [path.read_bytes() for path in files]
    monkeypatch.setattr(toy, "train", None)
    monkeypatch.setitem(toy_figure.STYLE, "figure.dpi", 40)
    said = []
    assert toy.reproduce(out, quick=True, show=said.append) == files
    assert [path.read_bytes() for path in files] == before
    assert said == [(out / "toy.md").read_text()]


def test_a_run_that_was_stopped_trains_the_rest_to_the_same_numbers(run, tmp_path):
    whole = (run[0] / "toy.jsonl").read_text()
    raw, said = tmp_path / "toy.jsonl", []
    raw.write_text("".join(whole.splitlines(keepends=True)[:-3]))
    toy.learn(raw, QUICK, SEEDS[:1], said.append)
    assert said == ["teacher on the same noise, VINE: 3 policies"]
    assert raw.read_text() == whole


def test_policies_of_another_scale_are_not_taken(run):
    assert toy.read(run[0] / "toy.jsonl", pentagon.Scale()) == {}


@pytest.mark.parametrize("damage", ['{"policy": "flow"}', "{", "[]"])
def test_a_damaged_line_is_named(tmp_path, damage):
    raw = tmp_path / "toy.jsonl"
    raw.write_text(f"{damage}\n")
    with pytest.raises(InputError, match=r"toy\.jsonl: line 1 is damaged .* remove this line"):
        toy.read(raw, QUICK)


def test_the_table_has_means_over_seeds():
    numbers = {"near": 0.5, "value": 0.25, "grad_max": 3.0, "reach": 1.5}
    made = {
        Setting(policy, "vine", alpha, seed): numbers | {"spread": alpha / 100 + seed / 10}
        for policy, alphas in (("behaviour", [0.0]), ("endpoint", ALPHAS))
        for alpha in alphas
        for seed in (0, 1)
    }
    table = toy.markdown(made)
    assert "Mean of 2 seeds" in table
    assert "| behaviour cloning | VINE | 0.05 | 0.50 | 0.25 | 3 | 1.5 |" in table
    assert "| endpoint | VINE | 0.06 / 0.08 / 0.15 |" in table
    assert "10 at (0.00, 0.00), worth 0.00" in table


def test_the_files_are_what_they_are_called(run):
    out, files, _ = run
    assert sorted(out.iterdir()) == sorted(files)
    starts = {path.name: path.read_bytes()[:15] for path in files}
    assert starts["toy.png"].startswith(b"\x89PNG")
    assert starts["toy.pdf"].startswith(b"%PDF")
    assert starts["toy.html"] == b"<!doctype html>"
    assert str(sum(len(group.members) for group in toy.groups(SEEDS))) in toy.cost()


def test_the_page_is_one_file_without_references(run):
    page = (run[0] / "toy.html").read_text()
    assert len(page) < 1_500_000
    assert not re.findall(
        r"https?:|//[a-z]+\.|\bsrc=|\bhref=|@import|url\(|\bimport\b|fetch\(", page
    )
    assert "/*TOY*/" not in page


def script(page, name):
    (text,) = re.findall(rf'<script id="{name}"[^>]*>(.*?)</script>', page, re.DOTALL)
    return text


def test_the_page_has_every_network_its_choices_name(run, lines):
    data = json.loads(script((run[0] / "toy.html").read_text(), "toy"))
    assert data["nets"].keys() == data["numbers"].keys()
    assert len(data["nets"]) == len(lines)
    assert data["nets"]["teacher/euler/3"] == lines[Setting("teacher", "euler", 3.0, 0)]["weights"]
    assert data["collapsed"].keys() == {"1", "3", "10"}


def in_node(page, code):
    """What code prints as JSON, after the page's functions; `toy` is what the page holds."""
    if not shutil.which("node"):
        pytest.skip("node, which runs the page's functions, is not installed")
    whole = f"{script(page, 'model')}\nconst toy = {script(page, 'toy')};\n{code}"
    done = subprocess.run(["node", "-"], input=whole, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("steps", [pentagon.K, 4])
@pytest.mark.parametrize("sampler", ["euler", "vine", "ddpm"])
def test_the_page_makes_the_same_paths_and_gradients(run, lines, sampler, steps):
    noises = jax.random.normal(jax.random.key(3), (steps + 1, 6, 2))
    found = in_node(
        (run[0] / "toy.html").read_text(),
        f"""const net = pack(toy.nets["behaviour/{sampler}"]);
        const all = {noises.swapaxes(0, 1).tolist()};
        const made = all.map((z) => trace(toy, net, "{sampler}", z, grid({steps})));
        console.log(JSON.stringify(made));""",
    )
    params = pentagon.from_layers(lines[Setting("behaviour", sampler, 0.0, 0)]["weights"])
    rule = pentagon.rule(QUICK.field, sampler, steps)
    last = lambda path: pentagon.value(path[-1])
    arriving, _ = samplers.step_gradients(rule.step, rule.field, params, noises, rule.times, last)
    of = lambda name: np.swapaxes([made[name] for made in found], 0, 1)
    np.testing.assert_allclose(of("path"), rule.path(params, noises), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(of("gradients"), arriving, rtol=5e-3, atol=1e-4)


def test_names_on_the_page():
    assert toy_page.name(Setting("behaviour", "ddpm", 0.0, 0)) == "behaviour/ddpm"
    assert toy_page.name(Setting("flow", "vine", 10.0, 1)) == "flow/vine/10"
