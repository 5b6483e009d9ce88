"""The build whose programs are tested: LOCKSTEP_BUILD_DIR, which ctest sets, else build/release."""
import os
import pathlib

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build/release").resolve()
BIN = BUILD / "bin"
