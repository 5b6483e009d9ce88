"""A Python in which `import torch` works, for the peers that benches measure and
tests compare with: the release of PyTorch that .ci/install unpacks.

What .ci/install unpacks is the C++ side without the CUDA libraries, which Python's `import torch` insists on. So this is an
environment of its own in the cache, made once (about 3 GB to download). The wheel of PyTorch itself is the one already there.
"""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def release():
    """The release of PyTorch that .ci/install pins."""
    site = subprocess.run([ROOT / ".ci/install", "--print-site"], check=True, capture_output=True, text=True).stdout.strip()
    return next(pathlib.Path(site).glob("torch-*.dist-info")).name.removeprefix("torch-").removesuffix(".dist-info")


def cache():
    return pathlib.Path(os.environ.get("LOCKSTEP_CACHE")
                        or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "lockstep"))


def folder():
    """Where the environment is, once it is made."""
    return cache() / "python" / f"bench-torch-{release()}"


def ensure():
    """The environment's python; where this one has a torch, itself."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    if not folder().exists():
        print(f"making {folder()}, once", file=sys.stderr, flush=True)
        partial = folder().with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", partial], check=True)
        subprocess.run([partial / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--find-links", cache() / "wheels", f"torch=={release()}", "numpy"], check=True)
        partial.rename(folder())
    return folder() / "bin/python"
