"""Fetching files from a server of this machine that fails in every way a server can."""

import errno
import hashlib
import io
import json
import os
import re
import socket
import tempfile
import threading
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinerl.data import download, files, transfer
from vinerl.errors import InputError
from vinerl.owner import Owner

NAME = "antmaze-tiny-navigate-v0"
TRAIN, VAL, CARD = f"{NAME}.npz", f"{NAME}-val.npz", f"{NAME}.json"


def arrays(seed=0, rows=40, **changes):
    draw = np.random.default_rng(seed)
    named = {
        "observations": draw.normal(size=(rows, 5)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "terminals": np.arange(rows) % 20 == 19,
        "qpos": draw.normal(size=(rows, 3)).astype(np.float32),
    }
    return named | changes


def packed(named, save=np.savez_compressed):
    buffer = io.BytesIO()
    save(buffer, **named)
    return buffer.getvalue()


OLD, NEW, HELD_OUT = packed(arrays(0)), packed(arrays(1)), packed(arrays(2, rows=20))
PAGE = b"<html>Please sign in to this network.</html>" * 9


class Mirror(ThreadingHTTPServer):
    """Serves `files` and keeps a log; each request takes the next of `faults`, if there is one."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/data"
        self.reset()

    def reset(self, *faults, **settings):
        self.files = {f"/data/{TRAIN}": OLD, f"/data/{VAL}": HELD_OUT}
        self.ranges, self.heeds, self.etag, self.modified = True, True, '"old"', None
        self.faults, self.log, self.sent, self.go_on = list(faults), [], 0, threading.Event()
        vars(self).update(settings)
        return self

    def asked(self, name=TRAIN):
        """The ranges that were asked for, one a request."""
        return [headers.get("Range") for path, headers in self.log if path.endswith(f"/{name}")]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        mirror: Any = self.server
        mirror.log.append((self.path, dict(self.headers)))
        fault = mirror.faults.pop(0) if mirror.faults else {}
        if "set" in fault:
            vars(mirror).update(fault["set"])
        body = fault.get("body", mirror.files.get(self.path))
        status = fault.get("status", 200 if body is not None else 404)
        total, first = len(body or b""), 0
        wanted, version = self.headers.get("Range"), self.headers.get("If-Range")
        known = not mirror.heeds or version in (mirror.etag, mirror.modified)
        if wanted and mirror.ranges and status == 200 and known:
            status, first = 206, int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= total:
                status, body = 416, None
        body = (body or b"")[first:]
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if body == PAGE else "application/zip")
        for name in ("ETag", "Last-Modified"):
            if value := mirror.etag if name == "ETag" else mirror.modified:
                self.send_header(name, value)
        if status == 206:
            first += fault.get("shift", 0)
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
        if "to" in fault:
            self.send_header("Location", fault["to"])
        if "endless" not in fault:
            self.send_header("Content-Length", str(len(body) + fault.get("longer", 0)))
        self.end_headers()
        body = body[: fault.get("cut")]
        self.wfile.write(body)
        self.wfile.flush()
        mirror.sent += len(body)
        if "stall" in fault:
            mirror.go_on.wait(10)

    def log_message(self, format, *args):
        """Nothing on the screen."""


@pytest.fixture(scope="module")
def served():
    with pytest.MonkeyPatch.context() as patch, Mirror() as mirror:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        thread = threading.Thread(target=mirror.serve_forever, args=(0.01,))
        thread.start()
        yield mirror
        mirror.shutdown()
        thread.join()


@pytest.fixture
def mirror(served):
    yield served.reset()
    served.go_on.set()


@pytest.fixture
def dead():
    """An address of this machine at which nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def get(folder, *mirrors, waits=(), stall=10.0, **options):
    mirrors = [getattr(m, "url", m) for m in mirrors]
    return download.fetch(NAME, folder, mirrors, waits=waits, stall=stall, **options)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_both_files_arrive_with_a_card_and_nothing_else(mirror, tmp_path):
    seen = []
    found = get(tmp_path / "new" / "folder", mirror, show=lambda *at: seen.append(at))
    folder = tmp_path / "new" / "folder"
    assert found == [folder / TRAIN, folder / VAL]
    assert [path.read_bytes() for path in found] == [OLD, HELD_OUT]
    assert names(folder) == {TRAIN, VAL, CARD}
    np.testing.assert_array_equal(files.read(found[0])["qpos"], arrays()["qpos"])

    card = json.loads((folder / CARD).read_text())
    dates = card.pop("fetched")
    assert set(dates) == {TRAIN, VAL}
    assert card == {
        "origin": "official",
        "url": {TRAIN: f"{mirror.url}/{TRAIN}", VAL: f"{mirror.url}/{VAL}"},
        "sha256": {TRAIN: sha256(OLD), VAL: sha256(HELD_OUT)},
        "size": {TRAIN: len(OLD), VAL: len(HELD_OUT)},
        "etag": {TRAIN: '"old"', VAL: '"old"'},
    }
    of_train = [done for done, total in seen if total == len(OLD)]
    assert of_train == sorted(of_train)
    assert of_train[-1] == len(OLD)
    assert seen[-1] == (len(HELD_OUT), len(HELD_OUT))


def test_what_was_fetched_is_kept_and_only_what_is_missing_is_asked_for(mirror, tmp_path, capsys):
    get(tmp_path, mirror)
    (tmp_path / VAL).unlink()
    mirror.reset()
    get(tmp_path, mirror)
    assert [path for path, _ in mirror.log] == [f"/data/{VAL}"]
    assert f"{TRAIN} is there already, from {mirror.url}" in capsys.readouterr().out
    mirror.reset()
    assert get(tmp_path, mirror) == [tmp_path / TRAIN, tmp_path / VAL]
    assert mirror.log == []


MADE = {"origin": "regenerated", "sha256": {name: sha256(b"mine") for name in (TRAIN, VAL)}}


@pytest.mark.parametrize("card", [None, MADE, {"origin": "official"}, []])
@pytest.mark.parametrize("name", [TRAIN, VAL])
def test_a_file_from_elsewhere_is_never_overwritten(mirror, tmp_path, card, name):
    (tmp_path / name).write_bytes(b"mine")
    if card is not None:
        (tmp_path / CARD).write_text(json.dumps(card))
    before = names(tmp_path)
    with pytest.raises(InputError, match=r"not\s+overwritten.*--dir"):
        get(tmp_path, mirror)
    assert mirror.log == [], "refused before anything is fetched"
    assert (tmp_path / name).read_bytes() == b"mine"
    assert names(tmp_path) == before


def test_a_fetched_file_that_was_changed_since_is_refused(mirror, tmp_path):
    get(tmp_path, mirror)
    (tmp_path / TRAIN).write_bytes(flipped(OLD, 999))
    with pytest.raises(InputError, match=TRAIN):
        get(tmp_path, mirror)


def test_a_file_that_appears_meanwhile_is_not_overwritten(mirror, tmp_path):
    with pytest.raises(InputError, match="appeared"):
        get(tmp_path, mirror, show=lambda *_: (tmp_path / TRAIN).write_bytes(b"mine"))
    assert (tmp_path / TRAIN).read_bytes() == b"mine"
    assert not (tmp_path / CARD).exists()


cuts = st.lists(st.integers(0, len(OLD) - 1), max_size=4)


@settings(max_examples=25, deadline=None)
@given(cuts=cuts, ranges=st.booleans(), etag=st.sampled_from(['"old"', 'W/"old"', None]))
def test_wherever_it_is_cut_a_restart_gives_the_exact_bytes(served, cuts, ranges, etag):
    served.reset(*({"cut": n} for n in cuts), ranges=ranges, etag=etag)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in cuts:
            with suppress(InputError):
                get(folder, served)
                break
            data = [path.read_bytes() for path in folder.glob("*.npz")]
            assert data in ([], [OLD]), "a part is no data"
        served.faults = []
        train, _ = get(folder, served)
        assert train.read_bytes() == OLD
        assert names(folder) == {TRAIN, VAL, CARD}
        if ranges and etag == '"old"' and min(cuts, default=4) >= 4:
            assert served.sent == len(OLD) + len(HELD_OUT), "no byte was sent twice"


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_wherever_the_program_is_stopped_a_restart_goes_on(served, data):
    """Pieces of 16 bytes, and the reader gives up after some of them."""
    served.reset()
    stop = data.draw(st.integers(20, len(OLD)))

    def show(done, total):
        if done >= stop and total == len(OLD):
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "PIECE", 16)
        with pytest.raises(KeyboardInterrupt):
            get(Path(name), served, show=show)
        assert names(Path(name)) == {f"{NAME}.getting"} | {
            f"{NAME}.getting/{TRAIN}.part{end}" for end in ("", ".json")
        }
        have = (Path(name) / f"{NAME}.getting" / f"{TRAIN}.part").stat().st_size
        assert stop <= have < stop + 16
        train, _ = get(Path(name), served)
        assert train.read_bytes() == OLD
    resumed = [f"bytes={have}-"] if have < len(OLD) else []
    assert served.asked() == [None, *resumed], "a whole part needs no request"


@pytest.mark.parametrize("renamed", [False, True])
def test_a_stop_around_the_last_step_costs_nothing(mirror, tmp_path, monkeypatch, renamed):
    replace = os.replace

    def stop(source, target):
        last = Path(target).name == TRAIN
        if renamed or not last:
            replace(source, target)
        if last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            get(tmp_path, mirror)
    assert (tmp_path / TRAIN).exists() == renamed
    assert get(tmp_path, mirror)[0].read_bytes() == OLD
    assert mirror.asked() == [None]


def test_a_stop_at_a_new_beginning_mixes_no_versions(mirror, tmp_path, monkeypatch):
    write = transfer.disk.write_sealed

    def stop(path, note):
        write(path, note)
        raise KeyboardInterrupt

    mirror.reset({"cut": 300})
    with pytest.raises(InputError):
        get(tmp_path, mirror)
    mirror.reset(files={f"/data/{TRAIN}": NEW, f"/data/{VAL}": HELD_OUT}, etag='"new"')
    with monkeypatch.context() as patch:
        patch.setattr(transfer.disk, "write_sealed", stop)
        with pytest.raises(KeyboardInterrupt):
            get(tmp_path, mirror)
    assert get(tmp_path, mirror)[0].read_bytes() == NEW
    assert mirror.asked() == ["bytes=300-", None]


def test_no_more_is_taken_than_was_announced(tmp_path, monkeypatch):
    """A file on a disk may grow while it is read."""
    source = tmp_path / TRAIN
    source.write_bytes(OLD)
    (tmp_path / VAL).write_bytes(HELD_OUT)
    monkeypatch.setattr(transfer, "PIECE", 16)

    def grow(*_):
        with source.open("ab") as file:
            file.write(b"more" * (file.tell() < 2 * len(OLD)))

    assert get(tmp_path / "to", tmp_path.as_uri(), show=grow)[0].read_bytes() == OLD


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize(
    "version", [{"etag": '"new"'}, {"etag": None, "modified": "Tue, 02 Sep 2025 10:00:00 GMT"}]
)
def test_a_file_that_changed_between_two_pieces_comes_from_the_beginning(
    mirror, tmp_path, heeds, version
):
    changed = {"files": {f"/data/{TRAIN}": NEW, f"/data/{VAL}": HELD_OUT}, **version}
    mirror.reset({"cut": 300}, {"set": changed}, heeds=heeds)
    assert get(tmp_path, mirror, waits=(0, 0))[0].read_bytes() == NEW
    again = [None] if not heeds else []
    assert mirror.asked() == [None, "bytes=300-", *again]


def test_the_version_is_asked_for_by_etag_or_else_by_date(mirror, tmp_path):
    for etag, modified, expected in (
        ('"old"', "Mon, 01 Sep 2025 10:00:00 GMT", '"old"'),
        ('W/"old"', "Mon, 01 Sep 2025 10:00:00 GMT", "Mon, 01 Sep 2025 10:00:00 GMT"),
        (None, "Mon, 01 Sep 2025 10:00:00 GMT", "Mon, 01 Sep 2025 10:00:00 GMT"),
        (None, None, None),
    ):
        mirror.reset({"cut": 300}, etag=etag, modified=modified)
        folder = tmp_path / str(len(names(tmp_path)))
        assert get(folder, mirror, waits=(0,))[0].read_bytes() == OLD
        assert [headers.get("If-Range") for _, headers in mirror.log[:2]] == [None, expected]
        assert mirror.asked() == [None, "bytes=300-" if expected else None]


def test_pieces_that_do_not_fit_together_are_fetched_once_more_from_the_beginning(mirror, tmp_path):
    """The server has another file of the same length under the same ETag."""
    other = flipped(OLD, 8 * 200)
    mirror.reset({"body": other, "cut": 300})
    with pytest.raises(InputError, match="after 300 of"):
        get(tmp_path, mirror)
    assert get(tmp_path, mirror)[0].read_bytes() == OLD
    assert mirror.asked() == [None, "bytes=300-", None]


@pytest.mark.parametrize("fault", [{"shift": 1}, {"status": 416}])
def test_a_wrong_piece_is_not_appended(mirror, tmp_path, fault):
    mirror.reset({"cut": 300}, fault)
    assert get(tmp_path, mirror, waits=(0, 0))[0].read_bytes() == OLD
    assert mirror.asked() == [None, "bytes=300-", None]


def test_a_part_of_another_mirror_is_not_added_to(mirror, tmp_path):
    mirror.files |= {f"/other/{TRAIN}": NEW, f"/other/{VAL}": HELD_OUT}
    mirror.faults = [{"cut": 300}]
    other = mirror.url.replace("/data", "/other")
    assert get(tmp_path, mirror, other)[0].read_bytes() == NEW
    assert json.loads((tmp_path / CARD).read_text())["url"][TRAIN] == f"{other}/{TRAIN}"


def test_a_page_in_place_of_the_rest_does_not_cost_what_has_arrived(mirror, tmp_path):
    mirror.reset({"cut": 300}, {"body": PAGE, "set": {"etag": None}}, {"set": {"etag": '"old"'}})
    for _ in range(2):
        with pytest.raises(InputError):
            get(tmp_path, mirror)
    get(tmp_path, mirror)
    assert mirror.asked() == [None, "bytes=300-", "bytes=300-"]
    assert mirror.sent == len(OLD) + len(PAGE) + len(HELD_OUT)


def test_tries_are_spaced_out_and_counted_anew_after_progress(mirror, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(transfer.time, "sleep", slept.append)
    down = {"status": 500, "body": b""}
    mirror.reset(down, down, {"cut": 300}, {"cut": 100}, down, {"cut": 100}, down)
    assert get(tmp_path, mirror, waits=(1, 2, 4))[0].read_bytes() == OLD
    assert slept == [1, 2, 1, 1, 2, 1, 2]
    assert mirror.asked()[-1] == "bytes=500-"


def test_a_server_without_ranges_is_given_up_when_it_always_stops_early(
    mirror, tmp_path, monkeypatch
):
    slept = []
    monkeypatch.setattr(transfer.time, "sleep", slept.append)
    mirror.reset(*[{"cut": 300}] * 9, ranges=False)
    with pytest.raises(InputError, match=f"ended after 300 of {len(OLD)} bytes"):
        get(tmp_path, mirror, waits=(1, 2))
    assert slept == [1, 2]


BAD = {
    "404": ({"status": 404, "body": b""}, "HTTP 404", False),
    "500": ({"status": 500, "body": b""}, "HTTP 500", True),
    "busy": ({"status": 429, "body": b""}, "HTTP 429", True),
    "nothing": ({"status": 204, "body": b""}, "HTTP 204", False),
    "piece": ({"status": 206, "body": OLD}, "HTTP 206", False),
    "stall": ({"stall": True, "cut": 300}, "timed out", True),
    "dropped": ({"cut": 300}, "after 300 of", True),
    "silent": ({"cut": 0}, "before the file began", True),
    "page": ({"body": PAGE}, "not an .npz file but text/html", False),
    "empty": ({"body": b""}, "not an .npz file", False),
    "endless": ({"endless": True}, "no Content-Length", False),
    "longer": ({"longer": 5}, f"after {len(OLD)} of {len(OLD) + 5}", True),
    "shorter": ({"longer": -5}, "damaged", False),
    "flipped": ({"body": flipped(OLD, 8 * 200)}, "damaged", False),
    "ftp": ({"status": 302, "to": "ftp://127.0.0.1/x"}, "redirects to ftp", False),
    "file": ({"status": 302, "to": f"file://{__file__}"}, "HTTP 302", False),
    "loop": ({"status": 302, "to": f"/data/{TRAIN}"}, "HTTP 302", False),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_mirror_is_named_with_its_reason_and_the_next_one_is_asked(mirror, tmp_path, case):
    fault, reason, transient = BAD[case]
    stall = 0.2 if case == "stall" else 10.0
    mirror.reset(*[fault] * 20, ranges=False)
    with pytest.raises(InputError) as error:
        get(tmp_path, mirror, waits=(0,) if transient else (99,), stall=stall)
    told = f"{re.escape(mirror.url)}/{TRAIN}: [^\n]*{re.escape(reason)}"
    assert re.search(told, str(error.value))
    assert f"vinerl data make {NAME}" in str(error.value)
    assert not list(tmp_path.glob("*.npz"))
    assert not (tmp_path / CARD).exists()

    (tmp_path / "usb").mkdir()
    for name, data in ((TRAIN, OLD), (VAL, HELD_OUT)):
        (tmp_path / "usb" / name).write_bytes(data)
    mirror.reset(*[fault] * 20, ranges=False)
    train, _ = get(tmp_path / "to", mirror, (tmp_path / "usb").as_uri(), stall=stall)
    assert train.read_bytes() == OLD


def test_a_dead_host_and_a_missing_folder_are_both_listed(dead, tmp_path):
    nowhere = (tmp_path / "nowhere").as_uri()
    with pytest.raises(InputError) as error:
        get(tmp_path / "to", dead, nowhere)
    assert f"{dead}/{TRAIN}: [Errno 111] Connection refused" in str(error.value)
    assert f"{nowhere}/{TRAIN}: [Errno 2]" in str(error.value)
    assert names(tmp_path) == {"to"}, "what is empty is cleared away"


def test_a_missing_file_of_this_machine_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer.time, "sleep", lambda _: pytest.fail("waited"))
    with pytest.raises(InputError, match="No such file"):
        get(tmp_path / "to", tmp_path.as_uri(), waits=(1,))


def test_redirects_are_followed_with_the_range(mirror, tmp_path):
    mirror.files[f"/store/{TRAIN}"] = OLD
    store = mirror.url.replace("/data", "/store")
    moved = {"status": 302, "body": b"", "to": f"{store}/{TRAIN}"}
    mirror.reset(moved, {"cut": 300}, moved, files=mirror.files)
    assert get(tmp_path, mirror, waits=(0,))[0].read_bytes() == OLD
    assert mirror.asked()[-2:] == ["bytes=300-", "bytes=300-"]
    card = json.loads((tmp_path / CARD).read_text())
    assert card["url"][TRAIN] == f"{mirror.url}/{TRAIN}", "the address that was asked for"


def test_no_redirect_leaves_the_web_or_gives_up_encryption():
    follows = transfer._may_follow
    assert follows("https://a/x", "https://b/x")
    assert follows("http://a/x", "https://b/x")
    assert follows("http://a/x", "http://b/x")
    assert not follows("https://a/x", "http://b/x")
    assert not follows("http://a/x", "file:///etc/passwd")
    assert not follows("http://a/x", "ftp://b/x")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "/etc/x", "-x", "a\n"])
def test_only_a_plain_name_is_taken(mirror, tmp_path, name):
    with pytest.raises(InputError, match="not the name of a dataset"):
        download.fetch(name, tmp_path / "in", [mirror.url])
    assert mirror.log == []
    assert names(tmp_path) == set()


@pytest.mark.parametrize("address", ["/media/usb", "ftp://host/x", "data:,x", "host/x"])
def test_only_web_and_file_addresses_are_taken(mirror, tmp_path, address):
    with pytest.raises(InputError, match="--mirror"):
        get(tmp_path / "in", mirror, address)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("address", ["http://[::1", "http://127.0.0.1:x", "http://a b"])
def test_an_address_that_is_none_is_a_reason(tmp_path, address):
    with pytest.raises(InputError, match="could not be fetched"):
        get(tmp_path / "in", address)


@pytest.mark.parametrize("inside", [".", "deeper", "../data"])
def test_the_folder_of_ogbench_is_never_written_to(mirror, tmp_path, monkeypatch, inside):
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (Path("~/.ogbench/data") / inside, tmp_path / ".ogbench" / "data" / inside):
        with pytest.raises(InputError, match="only read"):
            get(folder, mirror)
    assert names(tmp_path) == set()


def test_too_little_room_is_said_with_how_much_is_missing(mirror, tmp_path, monkeypatch):
    room = SimpleNamespace(free=3_000_000)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _: room)
    mirror.reset({"longer": 5_000_000 - len(OLD)})
    with pytest.raises(InputError, match=r"5\.0 MB are still to come, 2\.0 MB more than are free"):
        get(tmp_path, mirror)
    assert names(tmp_path) == set()


def test_a_part_counts_towards_the_room_that_is_needed(mirror, tmp_path, monkeypatch):
    mirror.reset({"cut": 300})
    room = SimpleNamespace(free=len(OLD))
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _: room)
    with pytest.raises(InputError, match="after 300"):
        get(tmp_path, mirror)
    room.free = len(OLD) - 300
    get(tmp_path, mirror)


def test_a_disk_that_fills_up_is_said_and_what_has_arrived_is_kept(mirror, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(transfer.os, "fsync", full)
        with pytest.raises(InputError, match=rf"{tmp_path}.*No space left.*kept"):
            get(tmp_path, mirror, waits=(99,))
    assert get(tmp_path, mirror)[0].read_bytes() == OLD


def test_two_processes_do_not_fetch_the_same_dataset(mirror, tmp_path):
    with Owner(tmp_path / f"{NAME}.getting"), pytest.raises(InputError, match="in use by process"):
        get(tmp_path, mirror)
    assert mirror.log == []
    get(tmp_path, mirror)


def test_a_recorded_hash_decides(mirror, tmp_path, monkeypatch):
    monkeypatch.setitem(download.KNOWN, TRAIN, (len(OLD), sha256(OLD)))
    same_arrays = flipped(OLD, 8 * (OLD.rindex(b"PK\1\2") + 12))  # a date in the zip's directory
    mirror.reset({"body": same_arrays})
    with pytest.raises(InputError, match=f"the official file has {sha256(OLD)}"):
        get(tmp_path, mirror)
    assert get(tmp_path, mirror)[0].read_bytes() == OLD


def test_a_recorded_size_is_compared_before_anything_is_fetched(mirror, tmp_path, monkeypatch):
    monkeypatch.setitem(download.KNOWN, TRAIN, (len(OLD) + 1, sha256(OLD)))
    with pytest.raises(InputError, match=f"{len(OLD)} bytes long, the official file has"):
        get(tmp_path, mirror)
    assert names(tmp_path) == set()


WRONG = {
    "no terminals": {"terminals": None},
    "no actions": {"actions": None},
    "actions has shape": {"actions": np.zeros(40, np.float32)},
    "observations has shape": {"observations": np.zeros(40, np.float32)},
    "qpos has shape": {"qpos": np.zeros((39, 3), np.float32)},
    "qpos.npy holds <U1": {"qpos": np.full(40, "x")},
    "qpos.npy holds object": {"qpos": np.full(40, None)},
    "names has shape": {"names": np.float64(1)},
}


@pytest.mark.parametrize("reason", WRONG)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_sound_zip_of_other_things_is_refused(tmp_path, reason, save):
    """An array of objects is seen from its header: what is in it is never loaded."""
    named = {name: x for name, x in arrays(**WRONG[reason]).items() if x is not None}
    (tmp_path / TRAIN).write_bytes(packed(named, save))
    with pytest.raises(InputError, match=reason):
        get(tmp_path / "to", tmp_path.as_uri())
    assert names(tmp_path / "to") == set()


@pytest.mark.parametrize(
    ("packing", "extra", "reason"),
    [
        (zipfile.ZIP_DEFLATED, b"x", "not as long as its shape"),
        (zipfile.ZIP_LZMA, b"", "packed in a way that is not NumPy's"),
    ],
)
def test_a_zip_that_numpy_would_not_write_is_refused(tmp_path, packing, extra, reason):
    with zipfile.ZipFile(tmp_path / TRAIN, "w", packing) as zipped:
        for name, x in arrays().items():
            buffer = io.BytesIO()
            np.save(buffer, x)
            zipped.writestr(f"{name}.npy", buffer.getvalue() + extra)
    with pytest.raises(InputError, match=reason):
        get(tmp_path / "to", tmp_path.as_uri())


def test_an_array_that_the_zip_no_longer_lists_is_missed(tmp_path):
    (tmp_path / TRAIN).write_bytes(OLD)
    with zipfile.ZipFile(tmp_path / TRAIN, "a") as zipped:
        zipped.writestr("button_states.npy", b"")
        assert zipped.filelist.pop(-2).filename == "qpos.npy"
    with pytest.raises(InputError, match="directory does not list"):
        get(tmp_path / "to", tmp_path.as_uri())


def test_damage_deep_in_a_long_array_is_noticed(tmp_path):
    long = packed(arrays(rows=4000), np.savez)
    (tmp_path / TRAIN).write_bytes(flipped(long, 8 * 60_000))
    with pytest.raises(InputError, match=r"checksum of observations\.npy is wrong"):
        get(tmp_path / "to", tmp_path.as_uri())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((np.savez, np.savez_compressed)), st.data())
def test_any_flipped_bit_is_noticed_or_changes_no_array(save, data):
    whole = packed(arrays(rows=20), save)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / TRAIN).write_bytes(flipped(whole, bit))
        (Path(name) / VAL).write_bytes(whole)
        try:
            train, _ = get(Path(name) / "to", Path(name).as_uri())
        except InputError:
            return
        found = files.read(train)
        assert set(found) == set(arrays())
        assert all(np.array_equal(found[n], x) for n, x in arrays(rows=20).items())


def test_a_proxy_of_the_environment_is_used(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", mirror.url.removesuffix("/data"))
    mirror.files = {f"http://mirror.invalid/{n}": OLD for n in (TRAIN, VAL)}
    assert get(tmp_path, "http://mirror.invalid/")[0].read_bytes() == OLD
    assert mirror.log[0][0] == f"http://mirror.invalid/{TRAIN}"
