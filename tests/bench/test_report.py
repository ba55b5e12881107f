"""The report: its numbers and words, that no text becomes markup, and how it works in a browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from vinerl import disk
from vinerl.bench.numbers import reference, report, results
from vinerl.bench.run import jobs, manifests
from vinerl.errors import InputError

TASK = "antmaze-large-navigate-singletask-task1-v0"
SHORT = "antmaze-large-navigate-task1"
HERE = Path(__file__).parents[2] / "results"
VERSIONS = {"jax": "0.11.2", "mujoco": "3.2.7"}
STEPS = 20_000


def publish(folder, seed=0, final=None, steps=STEPS, task=TASK, agent="vine", **changes):
    """A seed that was evaluated twice, at 0 and at what is given; every fact can be changed."""
    usual = vars(jobs.resolve(jobs.Request(agent=agent, task=task)).config)
    config = {k: manifests.freeze(v) for k, v in usual.items() if k not in results.HOW}
    recipe = {
        "task": task,
        "data": changes.pop("data", {"origin": "official", "sha256": "d" * 64}),
        "simulator": {"mujoco": "3.2.7", "ogbench": "1.2.2"},
        "protocol": {"eval_episodes": 10, "final_episodes": 50, "normalise": "none"},
        "agent": {"name": agent, "config": config | changes.pop("config", {})},
        "steps": steps,
    }
    provenance = {"run": "r", "manifest": "m" * 64, "data_sha256": "d" * 64, "commit": "c" * 40}
    provenance |= {"source_sha256": "s" * 64, "versions": VERSIONS, "exact": "not bit-exact"}
    provenance |= {"device": "NVIDIA H200", "started": "2026-01-01", "ended": "2026-01-02"}
    metrics = {
        "actor/spread": {"step": [steps // 2, steps], "value": [0.5, 0.1 * (seed + 1)]},
        "grad_norm/actor_max": {"step": [steps // 2, steps], "value": [3.0 + seed, 2.0]},
        "grad_norm/step": [0.0, 0.1, 1.0],
    }
    end = {"step": steps, "success": final, "success_noise0": 0.25}
    facts = {
        "schema": results.SCHEMA,
        "recipe": recipe,
        "seed": seed,
        "status": changes.pop("status", {"status": "learning"}),
        "curve": changes.pop("curve", {"step": [steps // 2], "success": [0.0]}),
        "final": None if final is None else end,
        "metrics": metrics | changes.pop("metrics", {}),
        "provenance": provenance | changes,
    }
    path = folder / "seeds" / results.where(recipe) / f"seed-{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.write_sealed(path, facts)


class Page(HTMLParser):
    """Tags, the text of each row by column, and the data of the script."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags, self.bodies, self.row, self.key, self.raw = [], [], {}, None, ""
        self.feed(self.text)
        self.data = json.loads(self.raw)

    def handle_starttag(self, tag, attrs):
        told = {name: value or "" for name, value in attrs}
        self.tags.append((tag, told))
        if tag == "tbody" and "data-steps" in told:
            self.bodies.append((int(told["data-steps"]), []))
        if tag == "tr":
            self.row = {}
        if tag == "tr" and "data-cell" in told:
            self.bodies[-1][1].append(self.row)
        if tag in ("td", "th", "script"):
            self.key = told.get("data-key", told.get("id"))
        if "data-key" in told:
            self.row[self.key] = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th", "script"):
            self.key = None

    def handle_data(self, data):
        if self.key == "data":
            self.raw += data
        elif self.key in self.row:
            self.row[self.key] += data

    @property
    def rows(self):
        return [row for _, rows in self.bodies for row in rows]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


def page(folder):
    return Page(report.write(folder, folder.parent / "out" / "report.html"))


def test_every_number_is_the_one_of_its_files(folder):
    curve = {"step": [4_000, 12_000], "success": [0.0, 0.0]}
    for seed, final in enumerate((0.4, 0.8)):
        publish(folder, seed, final, curve=curve)
    (row,) = page(folder).rows
    assert row == {
        "task": SHORT,
        "agent": "vine",
        "steps": "20k",
        "seeds": "2",
        "success": "0.600 [0.400, 0.800]",
        "area": "0.150 [0.100, 0.200]",  # nothing, then triangles of half the length
        "spread": "0.1500",  # of 0.1 and 0.2 at the end
        "gradient": "4",  # of the second seed, on the way
        "published": "–",
        "difference": "–",
        "notes": "",
    }


def test_cells_are_those_of_the_table_of_results(tmp_path):
    expected = [row[:5] for row in results.table(results.read(HERE))[1:]]
    rows = Page(report.write(HERE, tmp_path / "report.html")).rows
    found = [tuple(r[k] for k in ("task", "agent", "steps", "seeds", "success")) for r in rows]
    assert len(found) > 1
    assert sorted(found) == sorted(expected)


def test_lines_end_where_the_cell_ends_and_have_the_steps_of_all_seeds(folder):
    """A run that was cut off has logged further than it was evaluated."""
    norms = [{"step": [10_000, 20_000, 21_000], "value": [1.0, 2.0, 99.0]}]
    norms += [{"step": [5_000, 10_000, 20_000, 21_000], "value": [99.0, 3.0, 4.0, 99.0]}]
    curves = [{"step": [10_000, 20_000], "success": [0.2, 0.4]}]
    curves += [{"step": [15_000, 20_000], "success": [0.6, 0.8]}]
    for seed in (0, 1):
        changed = {"grad_norm/actor_max": norms[seed]}
        publish(folder, seed, curve=curves[seed], metrics=changed)
    found = page(folder)
    assert found.rows[0]["gradient"] == "4"
    assert found.rows[0]["area"] == "–"  # one evaluation in common is no curve
    assert found.rows[0]["success"].startswith("0.600")
    lines = found.data["cells"][0]["lines"]
    assert lines["grad_norm/actor_max"]["x"] == [10_000, 20_000]
    assert lines["grad_norm/actor_max"]["mean"] == [2.0, 3.0]
    assert lines["success"]["seeds"] == [[0.4], [0.8]]


def test_the_evaluation_at_the_end_is_the_curves_last_point(folder):
    publish(folder, 0, 0.5)
    line = page(folder).data["cells"][0]["lines"]["success"]
    assert (line["x"], line["mean"]) == ([10_000, 20_000], [0.0, 0.5])


def test_a_long_line_is_shortened_and_keeps_its_peak(folder):
    value = [1.0] * 3000
    value[1234] = 77.0
    line = {"step": list(range(0, 20_000, 10))[:3000], "value": value[:2000]}
    publish(folder, 0, 0.5, metrics={"grad_norm/actor_max": line, "actor/spread": line})
    lines = page(folder).data["cells"][0]["lines"]
    assert len(lines["grad_norm/actor_max"]["x"]) == report.POINTS
    assert max(lines["grad_norm/actor_max"]["mean"]) == 77.0
    assert max(lines["actor/spread"]["mean"]) == pytest.approx(1 + 76 / 17, rel=0.1)


def test_what_is_not_finite_is_said_and_not_averaged_away(folder):
    lost = {"step": [10_000, 20_000], "value": [None, 2.0]}
    publish(folder, 0, 0.5, metrics={"grad_norm/actor_max": lost})
    publish(folder, 1, 0.5)
    found = page(folder)
    assert found.rows[0]["gradient"] == "not finite"
    assert found.data["cells"][0]["lines"]["grad_norm/actor_max"]["mean"] == [None, 2.0]


def test_an_agent_without_a_metric_has_a_dash_and_no_line(folder):
    publish(folder, 0, 0.5, metrics={"actor/spread": {}, "grad_norm/step": []})
    found = page(folder)
    assert found.rows[0]["spread"] == "–"
    assert set(found.data["cells"][0]["lines"]) == {"success", "grad_norm/actor_max"}
    assert [t["data-panel"] for name, t in found.tags if name == "figure"] == [
        "success",
        "grad_norm/actor_max",
    ]


def test_cells_of_different_lengths_stand_apart(folder):
    for steps in (20_000, 1_000_000, 150_500):
        publish(folder, 0, 0.5, steps)
    bodies = page(folder).bodies
    assert [(steps, len(rows)) for steps, rows in bodies] == [
        (20_000, 1),
        (150_500, 1),
        (1_000_000, 1),
    ]
    assert [rows[0]["steps"] for _, rows in bodies] == ["20k", "150.5k", "1M"]


def test_two_recipes_of_one_name_are_told_apart(folder):
    publish(folder, 0, 0.5)
    publish(folder, 0, 0.7, data={"origin": "own", "sha256": "e" * 64})
    publish(folder, 0, 0.9, config={"alpha": 3.0})
    found = page(folder)
    names = sorted(row["agent"] for row in found.rows)
    assert names[2] == "vine alpha=3.0"
    assert all(re.fullmatch(r"vine \([0-9a-f]{8}\)", name) for name in names[:2])
    assert names[0] != names[1]
    assert len({cell["colour"] for cell in found.data["cells"]}) == 3


def test_an_agent_has_one_colour_in_every_task_and_two_at_two_lengths_of_one(folder):
    for steps in (STEPS, 30_000):
        publish(folder, 0, 0.5, steps)
    publish(folder, 0, 0.5, 40_000, TASK.replace("task1", "task2"))
    publish(folder, 0, 0.5, 40_000, TASK.replace("task1", "task2"), "fql")
    cells = {(c["name"], c["steps"]): c["colour"] for c in page(folder).data["cells"]}
    short, long = cells["vine", STEPS], cells["vine", 30_000]
    assert cells["vine", 40_000] == short
    assert len({short, long, cells["fql", 40_000]}) == 3


def test_no_two_cells_of_a_task_look_the_same(folder, monkeypatch):
    """Of four looks, in a task whose cells would have the first, fifth and second of all."""
    monkeypatch.setattr(report, "LOOKS", 4)
    other = TASK.replace("task1", "task2")
    for alpha in (1.0, 2.0, 3.0, 4.0, 5.0):
        publish(folder, 0, 0.5, config={"alpha": alpha})
    for alpha in (1.0, 5.0, 2.0):
        publish(folder, 0, 0.5, task=other, config={"alpha": alpha})
    cells = page(folder).data["cells"]
    colours = [cell["colour"] for cell in cells if "task2" in cell["task"]]
    assert len(set(colours)) == 3
    first = {cell["name"]: cell["colour"] for cell in cells if "task1" in cell["task"]}
    assert colours[0] == first["vine alpha=1.0"]


def test_the_script_has_as_many_looks_as_are_given_out():
    script = (resources.files("vinerl.bench.numbers") / "pages" / "report.js").read_text()
    dashes = json.loads(re.search(r"DASHES = (\[.*?\]);", script)[1])
    assert len(set(dashes)) * int(re.search(r"COLOURS = (\d+)", script)[1]) == report.LOOKS


def test_published_values_stand_beside_the_same_agent_after_the_same_steps(folder, monkeypatch):
    other = np.array([0.5, 0.5, 0.5])
    known = reference.Published(reference.Score(0.5, 0.4, 0.6), other, "a paper")
    asked = []

    def published(agent, task, step):
        asked.append((agent, task.name, step))
        return known if step == STEPS else None

    monkeypatch.setattr(reference, "published", published)
    publish(folder, 0, 0.6)
    publish(folder, 1, 0.8)
    publish(folder, 0, 0.6, config={"sampler": "euler"})
    publish(folder, 0, 0.6, steps=30_000)
    found = page(folder)
    rows = {(row["agent"], row["steps"]): row for row in found.rows}
    assert rows["vine", "20k"]["published"] == "0.500 [0.400, 0.600]"
    assert rows["vine", "20k"]["difference"] == "+0.200 [+0.100, +0.300]"
    assert rows["vine sampler=euler", "20k"]["published"] == "–"
    assert rows["vine", "30k"]["published"] == "–"
    assert set(asked) == {("vine", TASK, 20_000), ("vine", TASK, 30_000)}
    assert {cell["source"] for cell in found.data["cells"]} == {"a paper", None}


def test_a_published_interval_without_seeds_gives_one_too(folder):
    """The paper has VINE on this task at 100% in every seed, and ours are 0.5 and 1."""
    publish(folder, 0, 0.5, steps=reference.FINAL)
    publish(folder, 1, 1.0, steps=reference.FINAL)
    (row,) = page(folder).rows
    assert row["published"] == "1.000 [1.000, 1.000]"
    assert row["difference"] == "-0.250 [-0.500, +0.000]"


def test_a_published_mean_alone_gives_a_difference_alone(folder, monkeypatch):
    alone = reference.Published(reference.Score(0.5, np.nan, np.nan), None, "a paper")
    monkeypatch.setattr(reference, "published", lambda *asked: alone)
    publish(folder, 0, 0.6)
    (row,) = page(folder).rows
    assert (row["published"], row["difference"]) == ("0.500", "+0.100")


def test_what_to_know_of_a_number_stands_beside_it(folder):
    made = {"recipe": {"dataset": "antmaze-large-navigate-v0", "seed": 0}, "mujoco": "3.2.7"}
    publish(folder, 0, 0.5, data=made)
    frozen = {"status": "not finite", "frozen_at": 12_000}
    publish(folder, 1, None, data=made, status=frozen, commit="f" * 40 + "-dirty")
    found = page(folder)
    said = "regenerated data 1 of 2 frozen no final evaluation seeds differ in commit"
    assert found.rows[0]["notes"] == said
    cell = found.data["cells"][0]
    assert cell["differing"] == {"commit": ["ccccccc", "fffffff"]}
    assert [(s["frozen"], s.get("frozen_at")) for s in cell["seeds"]] == [
        (False, None),
        (True, 12_000),
    ]
    assert cell["seeds"][1]["file"] == f"seeds/{cell['id']}/seed-1.json"
    assert "ccccccc (1 seed), fffffff-dirty (1 seed)" in found.text
    assert "20k steps, 2 seeds, 1 frozen" in found.text
    assert "2 files, one a seed; 1 cell of 1 task" in found.text


def test_text_is_never_markup(folder):
    evil = "</script><b onclick=x>\"'&<!--data-->"
    publish(folder, 0, 0.5, config={"sampler": evil}, device=evil, commit=evil, run=evil)
    found = page(folder)
    assert "b" not in {tag for tag, _ in found.tags}
    assert not any("onclick" in told for _, told in found.tags)
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    assert "<" not in found.raw
    assert found.rows[0]["agent"] == f"vine sampler={evil}"
    assert found.data["cells"][0]["seeds"][0]["device"] == evil
    assert found.data["cells"][0]["recipe"]["agent"]["config"]["sampler"] == evil


def test_the_page_asks_for_nothing(folder):
    publish(folder, 0, 0.5)
    found = page(folder)
    assert not re.search(r"https?:|url\(|@import|<!--", found.text)
    assert not [told for _, told in found.tags if told.keys() & {"src", "srcset"}]
    links = [told["href"] for _, told in found.tags if "href" in told]
    ids = {told["id"] for _, told in found.tags if "id" in told}
    assert links == ["#cells", "#curves", f"#task-{SHORT}"]
    assert all(link[1:] in ids for link in links)
    assert len(found.text) < 60_000


QUEUE = f"""
[one]
tasks = ["{TASK}"]
seeds = [0, 1]
steps = {STEPS}
grid = [{{ sampler = "vine" }}, {{ sampler = "euler" }}]
"""


def test_what_is_planned_and_missing_is_listed_with_its_cost(folder):
    for seed in (0, 1):
        publish(folder, seed, 0.5)
    assert "Missing:" not in page(folder).text
    (folder / "queue.toml").write_text(QUEUE)
    text = page(folder).text
    # A minute to start, 20,000 steps of 1.47 ms (two members), in float32 1.6 times that, a minute.
    assert "Missing: 1 of 2 planned runs, about 2:47 on an H200" in text
    assert f"<td>{SHORT}-vine-euler-20k</td><td>2</td><td>2</td><td>2:47</td>" in text
    assert f"<td>{SHORT}-vine-vine-20k</td>" not in text
    for seed in (0, 1):
        publish(folder, seed, 0.5, config={"sampler": "euler"})
    assert "Missing:" not in page(folder).text


def test_nothing_and_damaged_files_are_refused(folder):
    with pytest.raises(InputError, match=r"nothing is published in .*results add"):
        report.write(folder, folder / "report.html")
    publish(folder, 0, 0.5)
    (path,) = folder.glob("seeds/**/*.json")
    path.write_text(path.read_text().replace("H200", "H100"))
    with pytest.raises(InputError, match=r"seed-0\.json: damaged or edited"):
        report.write(folder, folder / "report.html")
    assert not (folder / "report.html").exists()


# In a frame, because a window has a least width; `probe` ends by calling `say`.
FRAME = """<!doctype html><body style="margin:0"><iframe src="{src}"
style="border:0;width:{width}px;height:900px"></iframe><pre id="said"></pre>
<script>addEventListener("message", (e) => {{
  document.getElementById("said").textContent = encodeURIComponent(JSON.stringify(e.data));
}});</script>"""
PROBE = """<script>
const say = (what) => parent.postMessage(what, "*");
const order = () => [...document.querySelectorAll("tr[data-cell]:not([hidden])")]
  .map((row) => row.querySelector("[data-key=agent]").textContent);
addEventListener("load", () => setTimeout(() => {{ {probe} }}, 300));
</script></body>"""


def browse(path, probe, fragment="", width=1280, dark=False):
    """What `probe` says in a browser of that width; nothing may be said on the console."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium here")
    probed = path.read_text(encoding="utf-8").replace("</body>", PROBE.format(probe=probe))
    path.with_name("probed.html").write_text(probed, encoding="utf-8")
    frame = path.with_name("frame.html")
    frame.write_text(FRAME.format(src=f"probed.html#{fragment}", width=width), encoding="utf-8")
    command = [
        chromium,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,1000",
    ]
    command += ["--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += [f"--user-data-dir={path.parent / 'profile'}", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    said = re.search(r'<pre id="said">([^<]+)</pre>', done.stdout)
    assert said, done.stdout[-2000:]
    return json.loads(unquote(said[1]))


@pytest.fixture
def full(folder):
    """Three agents of one length, one of another, on two tasks."""
    for seed in (0, 1):
        publish(folder, seed, 0.9 - 0.1 * seed, config={"alpha": 9.0})
        publish(folder, seed, 0.1 + 0.1 * seed, config={"alpha": 11.0})
        publish(folder, seed, 0.5, config={"sampler": "euler"}, data={"origin": "own"})
        publish(folder, seed, 1.0, steps=reference.FINAL, agent="fql")
        publish(folder, seed, 1.0, task=TASK.replace("task1", "task2"))
    return report.write(folder, folder.parent / "report.html")


@pytest.mark.slow
def test_the_table_is_sorted_and_filtered_by_link_and_by_click(full):
    probe = """
      const first = order();
      document.querySelector("[data-sort=success]").click();
      const clicked = order(), link = location.hash;
      document.querySelector("[data-sort=agent]").click();
      const sorted = document.querySelector("[data-sort=agent]").parentNode.ariaSort;
      say({first, clicked, link, agents: order(), sorted,
           count: document.getElementById("count").textContent,
           sections: document.querySelectorAll(".task:not([hidden])").length});"""
    said = browse(full, probe, "sort=success&order=ascending&filter=task1+ALPHA")
    assert said["first"] == ["vine alpha=11.0", "vine alpha=9.0"]
    assert said["clicked"] == ["vine alpha=9.0", "vine alpha=11.0"]
    assert said["agents"] == ["vine alpha=9.0", "vine alpha=11.0"]  # by number, not by letter
    assert said["link"] == "#sort=success&order=descending&filter=task1+ALPHA"
    assert (said["sorted"], said["count"], said["sections"]) == ("ascending", "2 of 5 cells", 1)


@pytest.mark.slow
def test_sorting_keeps_lengths_apart(full):
    said = browse(full, "say(order());", "sort=success&filter=task1")
    assert said == ["vine alpha=9.0", "vine sampler=euler", "vine alpha=11.0", "fql"]


@pytest.mark.slow
def test_curves_are_drawn_and_numbers_tell_where_they_come_from(full):
    probe = """
      const count = (what) => document.querySelectorAll(`#task-%s ${what}`).length;
      const lines = [count(".plot .series"), count("[data-panel=success] .seed")];
      const plot = document.querySelector("[data-panel=success] .plot");
      const box = plot.getBoundingClientRect();
      const top = {clientX: box.right - 16, clientY: box.top + 10};
      plot.dispatchEvent(new PointerEvent("pointermove", top));
      const readout = plot.nextElementSibling.textContent;
      const lit = [...document.querySelectorAll(".lit")].map((group) => group.dataset.cell);
      document.querySelector(".keys button").click();
      const fewer = count("[data-panel=success] .series");
      const row = document.querySelector("tr[data-cell*='%s']");
      row.querySelector("[data-key=gradient]").click();
      const dialog = document.querySelector("dialog");
      const told = [dialog.open, dialog.textContent];
      dialog.querySelector(".close").click();
      row.querySelector("button").click();
      say({lines, readout, lit, fewer, told, again: dialog.textContent, open: dialog.open});"""
    said = browse(full, probe % (SHORT, SHORT))
    assert said["lines"] == [16, 8]  # four cells in four plots; two seeds each
    assert said["readout"] == "fql, 1M: 1 [1, 1]"
    assert len(said["lit"]) == 4
    assert len(set(said["lit"])) == 1
    assert said["fewer"] == 3
    is_open, text = said["told"]
    assert is_open
    assert "Largest gradient 4" in text
    for fact in ("NVIDIA H200", "d" * 64, "c" * 40, "seed-1.json", "agent.config.alpha", "0.11.2"):
        assert fact in text
    assert said["open"]
    assert "Share of the episodes" in said["again"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "dark"), [(360, False), (360, True), (800, False), (1140, False), (1280, True)]
)
def test_the_page_fits_and_can_be_read(full, width, dark):
    """No sideways scrolling, plots within the page, and text in contrast with its ground."""
    probe = """
      const light = (c) => c.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const ground = light(getComputedStyle(document.body).backgroundColor);
      const contrast = (node) => {
        const ink = light(getComputedStyle(node).color);
        return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
      };
      const root = document.documentElement;
      const names = ["h1", "thead button", "td button", "td[data-key=notes]", "figcaption", "dt"];
      const right = [...document.querySelectorAll(".plot, .keys button, #filter, #table td")]
        .map((node) => node.getBoundingClientRect().right);
      say({ground, width: root.clientWidth, content: root.scrollWidth, right: Math.max(...right),
           contrast: names.map((name) => contrast(document.querySelector(name)))});"""
    said = browse(full, probe, width=width, dark=dark)
    assert width - 20 <= said["width"] <= width
    assert said["content"] <= said["width"]
    assert said["right"] <= said["width"]
    assert min(said["contrast"]) >= 4.5
    assert (said["ground"] < 0.1) == dark
