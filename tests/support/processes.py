"""The processes that a case has started, however deep, found by a variable that they inherit."""
import contextlib
import os
import pathlib
import signal
import time

from cases import LIMIT



def with_variable(name, value):
    """The ids of the processes that were started with this variable."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def command(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "ended"


def expect_end(name, value):
    """Waits until those that are ended are gone: until then they may write. Who outlives what started it is killed, and the case fails."""
    end = time.monotonic() + LIMIT
    while left := with_variable(name, value):
        if time.monotonic() > end:
            outlived = {pid: command(pid) for pid in left}
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"processes outlive what started them: {outlived}")
        time.sleep(0.01)
