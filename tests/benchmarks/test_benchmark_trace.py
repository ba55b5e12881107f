"""`python -m benchmarks trace`: what is made of a profile."""

import gzip
import json
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest

from benchmarks import clock, steps, trace
from vinerl.errors import InputError

# Two steps and what comes after them; microseconds.
#
# stream 1 | gemm 0-10        | gemm 100-110       |
# stream 2 |    _forward 6-16 |   _forward 104-112 |
# stream 3 |  slice 2-5       |                    | select 140-144
RAN = [
    ("gemm_fusion_dot_1", 1, 0.0, 10.0),
    ("_forward__1", 2, 6.0, 10.0),
    ("loop_slice_fusion_2", 3, 2.0, 3.0),
    ("_forward__1", 2, 104.0, 8.0),
    ("gemm_fusion_dot_1", 1, 100.0, 10.0),
    ("loop_select_fusion", 3, 140.0, 4.0),
]


def profile(folder):
    """As JAX writes it; the host's calls are in it, too, and an empty event at the end."""
    named = lambda what, pid, name: {"ph": "M", "pid": pid, "name": what, "args": {"name": name}}
    processes = {3: "/device:GPU:0", 70: "/host:CPU"}.items()
    events = [named("process_name", pid, name) for pid, name in processes]
    events += [named("thread_name", 3, "Stream #14(Compute)") | {"tid": 1}]
    ran = lambda name, tid, ts, dur: {"ph": "X", "name": name, "tid": tid, "ts": ts, "dur": dur}
    events += [ran(*one) | {"pid": 3} for one in RAN]
    events += [ran("gemm_fusion_dot_1", 1, 0.0, 5000.0) | {"pid": 70}, {}]
    path = folder / "plugins/profile/2026/vm.trace.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_a_profile_is_summed_up_by_the_step(tmp_path):
    found = trace.summary(trace.read(profile(tmp_path)), count=2)
    assert (found["kernels"], found["kernels_us"]) == (3.0, 45 / 2)
    assert found["busy_us"] == (16 + 12 + 4) / 2
    assert found["span_us"] == 144 / 2
    rows = [tuple(row.values()) for row in found["by_kind"]]
    assert rows == [
        ("matrix products", 1.0, 10.0, 10.0),
        ("our own", 1.0, 9.0, 9.0),
        ("copies", 0.5, 3.0, 1.5),
        ("elementwise", 0.5, 4.0, 2.0),
    ]
    rows = [tuple(row.values()) for row in found["by_name"]]
    assert rows == [
        ("gemm_fusion_dot_1", 1.0, 10.0, 10.0),
        ("_forward__1", 1.0, 9.0, 9.0),
        ("loop_select_fusion", 0.5, 4.0, 2.0),
        ("loop_slice_fusion_2", 0.5, 3.0, 1.5),
    ]


def test_the_dearest_kernels_are_named():
    """The sums count those that are not."""
    found = trace.summary([trace.Kernel(f"loop_{i}", 0.0, float(i)) for i in range(1, 31)], count=1)
    assert [row["name"] for row in found["by_name"]] == [f"loop_{i}" for i in range(30, 5, -1)]
    assert found["by_kind"][0]["us"] == found["kernels_us"] == 465


def test_time_is_busy_once_however_many_kernels_run():
    spans = [(0, 10), (2, 3), (9, 12), (12, 13), (20, 21)]
    assert trace.busy(trace.Kernel("", a, b - a) for a, b in spans) == 13 + 1


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "matrix products": "gemm_fusion_dot_general_70 nvjet_sm90_tst_64x256_64x5_2x1_v_bz_NTN "
        "cutlass_80_tensorop_s1688gemm sm80_xmma_gemm_bf16bf16",
        "our own": "_forward _forward__1 _backward__2",
        "reductions": "input_reduce_fusion_107 input_add_reduce_fusion wrapped_reduce",
        "copies": "wrapped_transpose_1 wrapped_concatenate input_concatenate_fusion_3 "
        "loop_slice_fusion_26 loop_dynamic_update_slice_fusion memcpy128 memcpy32_post MemcpyD2H "
        "Memset",
        "elementwise": "loop_add_subtract_fusion wrapped_convert_1 loop_broadcast_fusion",
        "others": "void_cub_DeviceRadixSort",
    }.items(),
)
def test_a_kernel_is_known_by_its_name(kind, names):
    assert {name: trace.kind(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def test_a_hundred_steps_are_timed_without_the_profiler_which_sees_its_own(monkeypatch):
    asked = []

    @contextmanager
    def profiler(folder):
        asked.append("on")
        yield
        asked.append("off")
        profile(Path(folder))

    monkeypatch.setattr(jax.profiler, "trace", profiler)
    now = iter([0.0, 60.0, 60.0, 60.5, 60.5, 99.0])  # warming up, timed, under the profiler
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(now))
    found = trace.traced(steps.Program(asked.append, None, 1.5), 2)
    assert asked == [100, 100, "on", 2, "off"]
    assert (found["ms_per_step"], found["compile_s"], found["busy_us"]) == (5.0, 1.5, 16.0)


def test_a_line_and_three_tables(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(steps, "program", lambda *_: None)
    kernels = trace.read(profile(tmp_path))
    monkeypatch.setattr(trace, "traced", lambda _, count: trace.summary(kernels, count))
    args = ["--small", "--steps", "2", "--set", "precision=bfloat16", "--markdown"]
    trace.main([*args, "--out", str(tmp_path / "trace.jsonl")])
    said = capsys.readouterr()
    _, line = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert (line["agent"], line["members"], line["steps"]) == ("vine", 12, 2)
    assert (line["precision"], line["kernels"]) == ("bfloat16", 3.0)
    first, kinds, names = said.err.split("\n\n")
    assert first.startswith("| agent | members |")
    assert "| matrix products | 1 | 10 | 10 |" in kinds
    assert "| _forward__1 | 1 | 9 | 9 |" in names


def test_a_cpu_has_no_device_in_its_trace(capsys):
    trace.main(["--small", "--agent", "rebrac", "--members", "1", "--steps", "1"])
    said = capsys.readouterr()
    line = json.loads(said.out.splitlines()[-1])
    assert line["skipped"].startswith("the trace has no device in it")
    assert line["ms_per_step"] > 0
    assert "no device" in said.err
    assert "kind" not in said.err


def test_what_cannot_be_traced_is_refused():
    for flag in ("--steps", "--members"):
        with pytest.raises(InputError, match=f"{flag} 0: expected 1 or more"):
            trace.main(["--small", flag, "0"])
