"""train.py with a fault in the moment in which ranks connect, when each publishes its address. connects.py FOLDER EPOCHS

The first rank that finds FOLDER/dies-connecting dies. While FOLDER/waits-connecting exists, ranks wait there, and write FOLDER/connecting-PID.
"""
import os
import pathlib
import signal
import sys
import time

import train
from lockstep import round_store

FOLDER = pathlib.Path(sys.argv[1])


def publish(store, key, value, publish=round_store.RoundStore.set):
    waits = FOLDER / "waits-connecting"
    if waits.exists():
        (FOLDER / f"connecting-{os.getpid()}").touch()
    while waits.exists():
        time.sleep(0.01)
    try:
        (FOLDER / "dies-connecting").unlink()
    except FileNotFoundError:
        return publish(store, key, value)
    os.kill(os.getpid(), signal.SIGKILL)


round_store.RoundStore.set = publish
train.main()
