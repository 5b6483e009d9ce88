"""Servers of tests that get their port by their command line, and cannot choose one."""
import contextlib
import os
import pathlib
import socket
import subprocess

from cases import ENDS_WITH_US, until

ATTEMPTS = 5  # another process may take the port before the server does
LISTENS = "0A"


def built(script, name):
    """The program that this script below tests/ builds or brings."""
    folder = subprocess.run([pathlib.Path(__file__).resolve().parents[1] / script, "--print-bin"], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(folder.stdout.strip(), name)


def listens(pid, port):
    """Whether this process does, and not another that got the port."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == LISTENS}
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # others come and go
            if os.readlink(link) in sockets:
                return True
    return False


def start(command):
    """(process, port) of what `command(port)` starts, when it listens; the process is None where it ended before."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*ENDS_WITH_US, *map(str, command(port))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(f"{command(port)[0]} listens", lambda: process.poll() is not None or listens(process.pid, port), poll=0.02)
    except BaseException:
        end(process)
        raise
    return (process if process.poll() is None else None), port


def end(process):
    process.kill()
    process.wait()


@contextlib.contextmanager
def listening(command):
    """The port on which `command(port)` serves until the end."""
    for _ in range(ATTEMPTS):
        process, port = start(command)
        if process is not None:
            break
    else:
        raise AssertionError(f"{command(port)} ends at once, {ATTEMPTS} times")
    try:
        yield port
    finally:
        end(process)
