"""hsdp.py, but of pod 1 one rank ends, once, when the other one has joined its job, and before it has joined itself. hsdp_fails.py FOLDER EPOCHS"""
import os
import pathlib
import sys
import time

import hsdp
from lockstep.control import Control

has_joined, has_failed = pathlib.Path(sys.argv[1], "has-joined"), pathlib.Path(sys.argv[1], "has-failed")
announce = Control.announce


def announce_first(*arguments):
    announce(*arguments)
    has_joined.touch()


def fail(*_):
    while not has_joined.exists():
        time.sleep(0.01)
    has_failed.touch()
    os._exit(1)


if os.environ["GROUP_RANK"] == "1" and not has_failed.exists():
    Control.announce = announce_first if os.environ["LOCAL_RANK"] == "0" else fail
hsdp.main()
