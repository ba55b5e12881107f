"""What a run was made with."""

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
from jax.extend import backend

from vinerl.errors import DeviceError, InputError

PACKAGE = Path(__file__).resolve().parents[2]
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "gymnasium", "mujoco", "dm-control")
PACKAGES += ("ogbench", "safetensors")
DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
HEARD = b"\xa0\x09\x01"  # field 148 of XLA's DebugOptions, xla_gpu_deterministic_ops, is true


def versions() -> dict[str, str]:
    found = {name: _version(name) or "unknown" for name in PACKAGES}
    return {"python": platform.python_version()} | found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """From git where the package is a checkout, else from VINERL_COMMIT."""
    git = ["git", "-C", str(PACKAGE)]
    try:
        quiet = {"capture_output": True, "text": True, "timeout": 10, "check": True}
        tracked = subprocess.run([*git, "ls-files", "__init__.py"], **quiet).stdout.strip()
        if tracked:
            head = subprocess.run([*git, "rev-parse", "HEAD"], **quiet).stdout.strip()
            changed = subprocess.run([*git, "status", "--porcelain", "--", "."], **quiet).stdout
            return head + ("-dirty" if changed.strip() else "")
    except (OSError, subprocess.SubprocessError):
        pass
    return os.environ.get("VINERL_COMMIT", "unknown")


def source_hash() -> str:
    """Over the names and contents of the package's sources."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def cores() -> int:
    """The cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def hardware() -> dict[str, str | int]:
    device = jax.devices()[0]
    return {
        "platform": platform.platform(),
        "cores": cores(),
        "device": device.device_kind,
        "backend": jax.default_backend(),
    }


def deterministic() -> None:
    """Ask XLA for the same bits every time; it listens until JAX is first used."""
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    if jax.default_backend() != "cpu" and not _heard():
        os.environ["XLA_FLAGS"] = flags
        raise InputError(
            "--deterministic: JAX was used before in this process, and reads XLA_FLAGS only once. "
            "Train in a new process before anything else, use the command vinerl train, or start "
            f"Python with XLA_FLAGS='{DETERMINISTIC}'"
        )


def _heard() -> bool:
    """What the environment says now may have come too late: these are the options in use."""
    return HEARD in backend.get_compile_options(1, 1).SerializeAsString()


def exactness() -> str:
    """What a resumed run promises on this device."""
    if jax.default_backend() == "cpu":
        return "bit-exact for the same versions and number of cores"
    if _heard():
        return "bit-exact for the same versions and device"
    return "not bit-exact (--deterministic makes it so)"


def has_gpu() -> bool:
    """Of NVIDIA's, whether JAX sees it or not."""
    return Path("/proc/driver/nvidia/version").exists() or _device().exists()


def wants_gpu() -> bool:
    """Whether there is one, and nobody asks for the CPU instead."""
    return has_gpu() and not _wants_cpu()


def _device() -> Path:
    return Path("/dev/nvidia0")


def unseen_gpu() -> str | None:
    """A sentence where this machine has an NVIDIA GPU that JAX does not use."""
    if not wants_gpu() or jax.default_backend() != "cpu":
        return None
    if _built_for_gpu():
        return (
            "There is an NVIDIA GPU here and JAX's build for it, but JAX could not begin with it: "
            "what it said is above, and nvidia-smi tells what the GPU does. JAX_PLATFORMS=cpu is "
            "how to work on the CPU all the same"
        )
    return (
        "There is an NVIDIA GPU here, but JAX does not see it and runs on the CPU. "
        "Install the GPU build: pip install 'vinerl[cuda]', or 'vinerl[cuda12]' for an older driver"
    )


def _wants_cpu() -> bool:
    asked = jax.config.jax_platforms or ""  # pyright: ignore[reportAttributeAccessIssue]
    first = asked.partition(",")[0]  # of several, the one that JAX begins with
    return first == "cpu" or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


def _built_for_gpu() -> bool:
    return any(_version(f"jax-cuda{number}-plugin") for number in (12, 13))


def check_gpu() -> None:
    """Say that a GPU is not used; where JAX should be able to use it, refuse to do without."""
    if warning := unseen_gpu():
        if _built_for_gpu() and _device().exists():
            raise DeviceError(warning)
        print(warning)
