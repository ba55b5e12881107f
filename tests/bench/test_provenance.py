"""What a run was made with."""

import shutil
import subprocess

import pytest

from vinerl.bench.run import provenance


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The package's sources somewhere else, where there is no git."""
    ignore = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(provenance.PACKAGE, tmp_path / "vinerl", ignore=ignore)
    original = provenance.source_hash()
    monkeypatch.setattr(provenance, "PACKAGE", package)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.source_hash() == original, "wherever the package is"
    return package


def test_the_source_hash_changes_with_one_byte(copy):
    before = provenance.source_hash()
    file = copy / "rl" / "losses.py"
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)
    assert provenance.source_hash() != before


def test_the_source_hash_changes_with_a_name(copy):
    before = provenance.source_hash()
    (copy / "rl" / "losses.py").rename(copy / "rl" / "losses2.py")
    assert provenance.source_hash() != before


def test_without_git_the_commit_is_from_the_environment(copy, monkeypatch):
    monkeypatch.setenv("VINERL_COMMIT", "abc123")
    assert provenance.commit() == "abc123"
    monkeypatch.delenv("VINERL_COMMIT")
    assert provenance.commit() == "unknown"


def test_without_the_git_program_too(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("VINERL_COMMIT", "abc123")
    assert provenance.commit() == "abc123"


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_in_a_checkout_the_commit_is_gits_and_says_when_sources_changed(copy, monkeypatch):
    monkeypatch.setenv("VINERL_COMMIT", "not asked")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]

    def git(*words):
        command = ["git", "-C", str(copy.parent), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert provenance.commit() == "not asked", "a folder inside some other checkout"
    git("add", ".")
    git("commit", "-q", "-m", "x")
    assert provenance.commit() == git("rev-parse", "HEAD")
    (copy / "errors.py").write_text("")
    assert provenance.commit() == git("rev-parse", "HEAD") + "-dirty"


def test_versions_and_hardware_are_known():
    assert {"python", "jax", "mujoco", "ogbench", "numpy"} <= set(provenance.versions())
    assert "unknown" not in provenance.versions().values()
    assert provenance.hardware()["backend"] == "cpu"
    assert provenance.cores() >= 1


def test_a_gpu_that_jax_does_not_see_is_mentioned(monkeypatch):
    monkeypatch.setattr(provenance.Path, "exists", lambda self: "nvidia" in str(self))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert "vinerl[cuda]" in provenance.unseen_gpu()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert provenance.unseen_gpu() is None, "who asks for the CPU gets it"
