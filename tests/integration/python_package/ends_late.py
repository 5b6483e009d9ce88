"""A script whose interpreter takes long to end, and at whose end a thread of the package still waits in PyTorch. ends_late.py FOLDER

Each process leaves FOLDER/started-PID.
"""
import contextlib
import datetime
import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

import lockstep
from lockstep import rounds

pathlib.Path(sys.argv[1], f"started-{os.getpid()}").touch()


class EndsLate:
    def __del__(self):
        time.sleep(3)


late = EndsLate()
job = lockstep.join(torch.nn.Linear(1, 1))
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
waits = threading.Event()


def wait():
    waits.set()
    with contextlib.suppress(RuntimeError):
        store.wait(["nobody sets it"], datetime.timedelta(seconds=1))


threading.Thread(target=wait, name=rounds._WAITING, daemon=True).start()
waits.wait()
