"""The Python in which `import torch` works: what tests compare with and the peers that benches measure.

.ci/install makes it of the wheel of PyTorch that Lockstep is compiled with; .ci/make-torch-python says how. It knows only the CPU.
"""
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def python():
    """The interpreter with the pinned release of PyTorch, or with that of tests/with-pytorch."""
    if other := os.environ.get("LOCKSTEP_TORCH_PYTHON"):
        return pathlib.Path(other)
    path = pathlib.Path(subprocess.run([ROOT / ".ci/install", "--print-torch-python"], check=True, capture_output=True, text=True).stdout.strip())
    if not path.exists():
        sys.exit(f"no Python with PyTorch at {path}: run .ci/install")
    return path


@functools.cache
def frameworks():
    """The folder of Hugging Face's transformers and accelerate, and of Lightning, for PYTHONPATH of python()."""
    return subprocess.run([ROOT / ".ci/install", "--print-framework-site"], check=True, capture_output=True, text=True).stdout.strip()


def packages():
    """The folder of its packages, for PYTHONPATH of another interpreter of the same version."""
    found, = python().parents[1].glob("lib/python3*/site-packages")
    return found


def python_for_benches():
    """The running interpreter where it has a PyTorch, as on a machine with a GPU; else the pinned one."""
    return sys.executable if importlib.util.find_spec("torch") else python()


def cache():
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE")
                        or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "lockstep"))
