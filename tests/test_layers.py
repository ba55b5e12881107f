"""Imports point one way, and some things are imported nowhere."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vinerl
from vinerl.agents import AGENTS

ROOT = Path(vinerl.__file__).parent
BASE = {"types", "errors", "disk", "owner"}
MAY_USE = {
    "types": set(),
    "errors": set(),
    "disk": {"errors"},
    "owner": {"errors"},
    "kernels": BASE,
    "flow": BASE,
    "nets": BASE | {"kernels"},
    "data": BASE,
    "envs": BASE,
    "rl": BASE | {"kernels", "flow", "nets"},
    "agents": BASE | {"flow", "nets", "rl"},
    "collect": BASE | {"rl", "data", "envs"},
    "train": BASE | {"rl", "data", "envs"},
    "bench": BASE | {"flow", "nets", "data", "envs", "rl", "agents", "collect", "train"},
}
TOP = {"__init__", "__main__", "cli"}
MODULES = sorted(ROOT.rglob("*.py"))
POSIX = ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog")


def layer(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(nodes):
    """Every name that is imported, in full."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def everywhere(path):
    return ast.walk(ast.parse(path.read_text()))


def at_import(node):
    """What runs when a module is imported: everything outside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def test_every_module_has_its_place():
    assert {layer(path) for path in MODULES} == set(MAY_USE) | TOP


@pytest.mark.parametrize("name", MAY_USE)
def test_imports_point_one_way(name):
    for path in (path for path in MODULES if layer(path) == name):
        ours = {x.split(".")[1] for x in imports(everywhere(path)) if x.startswith("vinerl.")}
        assert ours <= MAY_USE[name] | {name}, path


def test_nothing_below_bench_names_an_algorithm():
    names = set(AGENTS) | {type(config).__name__ for config, _ in AGENTS.values()}
    names |= {make.__name__ for _, make in AGENTS.values()}
    for path in MODULES:
        if layer(path) in {"train", "collect", "rl", "data", "envs", "nets"}:
            for node in everywhere(path):
                said = getattr(node, "id", None) or getattr(node, "value", None)
                assert not isinstance(said, str) or said not in names, (path, node.lineno)


def test_nothing_that_executes_what_it_loads_or_belongs_elsewhere():
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "torch", "lerobot"}
    for path in MODULES:
        for node in everywhere(path):
            used = {x.split(".")[0] for x in imports([node])}
            assert not used & forbidden, (path, used)
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                direct = isinstance(node.func, ast.Name)
                assert not (direct and called in ("eval", "exec")), (path, node.lineno)
                for word in node.keywords:
                    allowed = isinstance(word.value, ast.Constant) and word.value.value is False
                    assert word.arg != "allow_pickle" or allowed, (path, node.lineno)
                if called == "load" and getattr(node.func.value, "id", None) == "np":
                    assert any(word.arg == "allow_pickle" for word in node.keywords), path


def test_what_needs_a_network_or_is_optional_is_imported_where_it_is_used():
    network = {"urllib", "requests", "socket", "http", "httpx", "ftplib", "huggingface_hub"}
    optional = {"wandb", "tensorboardX", "rich", "imageio", "imageio_ffmpeg", "ray"}
    for path in MODULES:
        top = {x.split(".")[0] for x in imports(at_import(ast.parse(path.read_text())))}
        assert not top & (network | optional), path
        assert "matplotlib" not in top or path.name == "plots.py", path
        found = {x for x in imports(everywhere(path)) if x.split(".")[0] in network}
        assert not found or path.name == "transfer.py", path


def test_every_module_imports_where_nothing_is_posix():
    names = [".".join(p.relative_to(ROOT.parent).with_suffix("").parts) for p in MODULES]
    names = [name.removesuffix(".__init__") for name in names]
    code = f"import sys; sys.modules |= dict.fromkeys({POSIX})\n"
    code += "\n".join(f"import {name}" for name in names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
