"""Several processes on one GPU: shares of its memory, and the daemon's life."""

import os
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from vinerl.bench.plans import sharing
from vinerl.bench.run import provenance
from vinerl.owner import Owner

SCRIPT = """#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY: $* $(cat)" >> {log}
"""


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A stand-in for NVIDIA's that keeps what it is told."""
    log, script = tmp_path / "log", tmp_path / "bin" / sharing.CONTROL
    script.parent.mkdir()
    script.write_text(SCRIPT.format(log=log))
    script.chmod(0o755)
    chosen = {*sharing.CHOSEN, *sharing.FOLDERS}
    environment = {k: v for k, v in os.environ.items() if k not in chosen}
    monkeypatch.setattr(os, "environ", environment)
    os.environ["PATH"] = f"{script.parent}:{os.environ['PATH']}"
    monkeypatch.setattr(provenance, "wants_gpu", lambda: True)
    monkeypatch.setattr(sharing.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(sharing.shutil, "which", lambda name: str(script))
    monkeypatch.setattr(sharing, "CONTROL", str(script))
    return lambda: log.read_text().splitlines() if log.exists() else []


def test_it_lives_as_long_as_the_work(daemon, tmp_path):
    with suppress(KeyError), sharing.shared(2):
        assert [line.split(": ")[1].strip() for line in daemon()] == ["-d"]
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(tmp_path))
        raise KeyError
    assert [line.split(": ")[1].strip() for line in daemon()] == ["-d", "quit"]
    assert len({line.split(": ")[0] for line in daemon()}) == 1
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_it_is_not_needed_for_one_nor_without_a_gpu_nor_where_there_is_another(daemon, monkeypatch):
    with sharing.shared(1):
        pass
    monkeypatch.setattr(provenance, "wants_gpu", lambda: False)
    with sharing.shared(2):
        pass
    monkeypatch.setattr(provenance, "wants_gpu", lambda: True)
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = "mine"
    with sharing.shared(2):
        pass
    assert daemon() == []
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "mine"


@pytest.mark.parametrize(
    ("platforms", "devices", "wanted"),
    [("", "0", True), ("cuda,cpu", "0", True), ("cpu", "0", False), ("", "", False)],
)
def test_who_asks_for_the_cpu_shares_no_gpu(platforms, devices, wanted, monkeypatch):
    monkeypatch.setattr(provenance, "has_gpu", lambda: True)
    config = SimpleNamespace(jax_platforms=platforms)
    monkeypatch.setattr(provenance, "jax", SimpleNamespace(config=config))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert provenance.wants_gpu() == wanted


def test_one_that_another_process_works_with_is_used_and_left_to_it(daemon):
    with sharing.shared(2):
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    before = daemon()
    with Owner(sharing.Path(folder)), sharing.shared(2):
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == folder
    assert daemon() == before, "neither begun nor told to end"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_it_is_not_waited_for_while_others_still_use_it(daemon, monkeypatch):
    """As NVIDIA's: told to quit, it answers when its last client has gone."""
    with open(sharing.CONTROL, "a") as script:
        script.write('[ "$*" = -d ] || exec sleep 30\n')
    monkeypatch.setattr(sharing, "PATIENCE", 0.5)
    began = time.monotonic()
    with sharing.shared(2):
        pass
    assert time.monotonic() - began < 10
    assert [line.split(": ")[1].strip() for line in daemon()] == ["-d", "quit"]


def test_each_has_its_share_of_the_memory(daemon):
    with sharing.shared(3):
        assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.30"
    assert "XLA_CLIENT_MEM_FRACTION" not in os.environ
    with sharing.shared(1):
        assert "XLA_CLIENT_MEM_FRACTION" not in os.environ


def test_what_the_user_has_chosen_stays(daemon):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    with sharing.shared(2):
        assert "XLA_CLIENT_MEM_FRACTION" not in os.environ
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
