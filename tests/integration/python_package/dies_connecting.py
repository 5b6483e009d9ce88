"""train.py whose rank dies in the moment in which ranks connect, once: the first that finds FOLDER/dies-connecting. dies_connecting.py FOLDER EPOCHS"""
import os
import pathlib
import signal
import sys

import train
from lockstep import round_store


def publish(store, key, value, publish=round_store.RoundStore.set):
    try:
        pathlib.Path(sys.argv[1], "dies-connecting").unlink()
    except FileNotFoundError:
        return publish(store, key, value)
    os.kill(os.getpid(), signal.SIGKILL)


round_store.RoundStore.set = publish
train.main()
