"""The model of slow_mlp.cc: an mlp that waits in each forward pass of the training while FOLDER/steps-wait exists."""
import pathlib

from build_folder import BUILD

LIBRARY = BUILD / "tests/support/libslow_mlp.so"
WHILE = "steps-wait"


def model(folder, milliseconds, hidden=(64,), library=LIBRARY):
    """The section of the manifest. `folder` and `library`: as ranks see them; `milliseconds`: of each forward pass."""
    options = {"while": f"{folder}/{WHILE}", "milliseconds": str(milliseconds), "hiddenSizes": ",".join(map(str, hidden))}
    return {"name": "plugin", "plugin": {"path": str(library), "name": "slow-mlp", "options": options}}


def slowly(folder):
    pathlib.Path(folder, WHILE).touch()


def quickly(folder):
    pathlib.Path(folder, WHILE).unlink(missing_ok=True)
