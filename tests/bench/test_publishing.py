"""Publishing a run: its folder and its seeds, and nothing that tells of the machine."""

import json
import platform
import re

import pytest
from test_results import PUBLISHED, changed

from vinerl import cli, disk
from vinerl.bench.numbers import publishing, results
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError

TASK = "antmaze-large-navigate-task1"
HOST = "moria"
KERNEL = f"Linux-6.8.0-1021-{HOST}-x86_64-with-glibc2.39"
SECRETS = (HOST, "6.8.0", "glibc", "/home/gandalf", "C:\\Users")


@pytest.fixture
def run(tmp_path):
    """A run as it is on the machine it was trained on, taken up once on another one."""
    hardware = {"platform": KERNEL, "cores": 16, "device": "NVIDIA H200", "backend": "gpu"}
    return changed(
        Run(PUBLISHED),
        tmp_path / f"{TASK}-vine-150k",
        hardware=hardware,
        data__path="/home/gandalf/data/antmaze-large-navigate-v0.npz",
        run__out="/home/gandalf/runs/vine",
        resumed=[{"at": "noon"}, {"at": "one", "hardware": hardware | {"cores": 8}}],
    )


def strings(tree):
    """Every string in a tree, with the keys."""
    if isinstance(tree, dict):
        return [x for k, v in tree.items() for x in (k, *strings(v))]
    if isinstance(tree, list):
        return [x for v in tree for x in strings(v)]
    return [tree] if isinstance(tree, str) else []


def written(folder):
    """Every file below a folder with the trees in it."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        yield path, [json.loads(line) for line in lines]


def test_nothing_tells_of_the_machine(run, tmp_path):
    out = tmp_path / "results"
    publishing.publish(run, out)
    files = dict(written(out))
    assert len(files) == 2 + 4
    for path, trees in files.items():
        for words in (str(path.relative_to(out)), *strings(trees)):
            assert not words.startswith(("/", "~")), (path, words)
            assert not re.match(r"[A-Za-z]:\\", words), (path, words)
            assert not any(secret in words for secret in (*SECRETS, platform.node())), (path, words)


def test_the_folder_is_the_run_as_it_was_otherwise(run, tmp_path):
    *_, raw = publishing.publish(run, tmp_path / "results")
    assert raw == tmp_path / "results" / TASK / "vine-150k"
    found, before = Run(raw).manifest, run.manifest
    assert found["data"].pop("path") == "antmaze-large-navigate-v0.npz"
    for part in (found, found["resumed"][1]):
        assert part["hardware"].pop("platform") == "Linux"
    assert [x.get("hardware", {}).get("cores") for x in found["resumed"]] == [None, 8]
    before["data"].pop("path")
    before["run"].pop("out")
    for part in (before, before["resumed"][1]):
        part["hardware"].pop("platform")
    assert found == before
    assert (raw / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()
    seeds = results.read(tmp_path / "results")
    assert {seed.facts["provenance"]["manifest"] for seed in seeds} == {
        disk.digest(Run(raw).manifest)
    }
    assert {seed.facts["provenance"]["run"] for seed in seeds} == {"vine-150k"}


def test_published_again_everything_stays(run, tmp_path):
    """A queue that was killed while it published does it again."""
    *seeds, raw = publishing.publish(run, tmp_path / "results")
    before = {path: path.read_bytes() for path in (tmp_path / "results").rglob("*.json*")}
    seeds[2].unlink()
    (raw / "manifest.json").unlink()
    publishing.publish(run, tmp_path / "results")
    assert {p: p.read_bytes() for p in (tmp_path / "results").rglob("*.json*")} == before


def test_the_folder_of_another_run_is_not_overwritten(run, tmp_path, capsys):
    publishing.publish(run, tmp_path / "results")
    more = [{"seed": s, "status": "learning"} for s in (4, 5, 6, 7)]
    (tmp_path / "there").mkdir()
    other = changed(run, tmp_path / "there" / run.path.name, members=more, started="later")
    words = ["results", "add", str(other.path), "--folder", str(tmp_path / "results")]
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "vine-150k holds another run; give this one a --name" in capsys.readouterr().err
    assert len(results.read(tmp_path / "results")) == 4
    with pytest.raises(SystemExit):
        cli.main([*words, "--name", "../vine"])
    cli.main([*words, "--name", "more"])
    assert str(tmp_path / "results" / TASK / "more") in capsys.readouterr().out
    assert len(results.read(tmp_path / "results")) == 8


def stacked(run, folder, *alphas, **changes):
    """Two values of alpha, each with two seeds, in another folder of the same name."""
    members = [{"seed": s, "alpha": a, "status": "learning"} for a in alphas for s in (0, 1)]
    folder.mkdir()
    changes |= {"members": members, "agent__config__alpha": list(alphas), "started": folder.name}
    return changed(run, folder / run.path.name, **changes)


def alphas(paths):
    return [disk.read_sealed(path, 1)["recipe"]["agent"]["config"]["alpha"] for path in paths]


def test_the_rest_of_a_run_is_what_nobody_has_published(run, tmp_path, capsys):
    """In a folder of its own, and as often as it is asked for; without anything new it is none."""
    out, first = tmp_path / "results", stacked(run, tmp_path / "first", 3.0, 10.0)
    publishing.publish(first, out)
    second = stacked(run, tmp_path / "second", 3.0, 30.0)
    with pytest.raises(InputError, match="holds another run"):
        publishing.publish(second, out)
    with pytest.raises(InputError, match=r"seed-0\.json is there already"):
        publishing.publish(second, out, name="another")
    before = {path: path.read_bytes() for path in out.rglob("*.json*")}
    *seeds, raw = publishing.publish(second, out, rest=True)
    assert "2 of 4 members are published already and stay as they are" in capsys.readouterr().out
    assert raw == out / TASK / "vine-150k-2"
    assert alphas(seeds) == [30.0, 30.0]
    after = {path: path.read_bytes() for path in out.rglob("*.json*")}
    assert {path: after[path] for path in before} == before
    assert len(results.read(out)) == 6

    seeds[1].unlink()
    assert publishing.publish(second, out, rest=True) == [*seeds, raw]
    assert {path: path.read_bytes() for path in out.rglob("*.json*")} == after
    with pytest.raises(InputError, match=r"third.*: every member is published already"):
        publishing.publish(stacked(run, tmp_path / "third", 3.0, 30.0), out, rest=True)
    assert not (out / TASK / "vine-150k-3").exists()


def test_what_an_earlier_version_published_is_published(run, tmp_path):
    """Its file has another name, as its recipe lacks a field that the agent has got since."""
    config = {k: v for k, v in run.manifest["agent"]["config"].items() if k != "stop_at"}
    first = stacked(run, tmp_path / "first", 3.0, 10.0, agent__config=config)
    publishing.publish(first, tmp_path / "results")
    second = stacked(run, tmp_path / "second", 3.0, 30.0)
    *seeds, _ = publishing.publish(second, tmp_path / "results", rest=True)
    assert alphas(seeds) == [30.0, 30.0]
    assert len(results.read(tmp_path / "results")) == 6


def test_a_run_that_was_published_before_it_ended_may_end(run, tmp_path):
    cut = changed(run, tmp_path / "vine-150k", ended=None)
    lines = (cut.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cut.path / "metrics.jsonl").write_text("".join(lines[:100]))
    publishing.publish(cut, tmp_path, unfinished=True)
    publishing.publish(run, tmp_path)
    assert Run(tmp_path / TASK / "vine-150k").manifest["ended"]


def test_an_agent_of_ones_own_keeps_the_name_of_its_file(run, tmp_path):
    own = changed(run, tmp_path / "own", agent__name="/home/gandalf/mine.py:MINE")
    *seeds, raw = publishing.publish(own, tmp_path / "results")
    assert seeds[0].parent.name.startswith("MINE-")
    assert Run(raw).manifest["agent"]["name"] == "mine.py:MINE"
    (row,) = results.table(results.read(tmp_path / "results"))[1:]
    assert row[1].startswith("mine.py:MINE ")


@pytest.mark.parametrize("where", ["/home/gandalf", "see /x.npz", "~/x", r"D:\data\x.npz"])
def test_a_folder_that_slipped_in_elsewhere_is_refused(run, tmp_path, where):
    strange = changed(run, tmp_path / "strange", data__card__made=where)
    with pytest.raises(InputError, match="is not published: it tells of"):
        publishing.publish(strange, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_all_that_is_published_here_is_plain():
    folder = PUBLISHED.parents[1]
    for path in (*folder.glob("*-task?/*/manifest.json"), *folder.glob("seeds/*/*/*.json")):
        facts = json.loads(path.read_text())
        assert not any(publishing.ABSOLUTE.search(words) for words in strings(facts)), path
