"""A program that joins its rank without our package and without PyTorch: it speaks with its supervisor over LOCKSTEP_RANK_SOCKET, and keeps its
process and its step through the rounds. The ranks add numbers through a store that rank 0 hosts, until FOLDER/finish exists.

joins.py FOLDER [MISCHIEF]    appends to FOLDER a line for each step, each Ready and each end of a round
"""
import contextlib
import json
import os
import pathlib
import queue
import socket
import sys
import threading
import time

FOLDER, MISCHIEF = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
PID = os.getpid()
LEDGER = os.open(FOLDER / f"{PID}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(event, **fields):
    os.write(LEDGER, (json.dumps({"event": event, "pid": PID, **fields}) + "\n").encode())


class Supervisor:
    """The connection to it. Closes the connections of a round that is over, which wakes the thread that uses them."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect("\0" + os.environ["LOCKSTEP_RANK_SOCKET"])
        self.assignments, self.changed = queue.Queue(), threading.Lock()
        self.over, self.peers = 0, []
        threading.Thread(target=self.listen, daemon=True).start()

    def say(self, kind, **fields):
        self.socket.sendall((json.dumps({"type": kind, **fields}) + "\n").encode())

    def listen(self):
        for message in map(json.loads, self.socket.makefile()):
            if message["type"] == "assignment":
                self.assignments.put(message)
            elif message["type"] == "roundOver":
                note("over", round=message["round"], mode=message["mode"])
                with self.changed:
                    self.over = message["round"]
                    close(self.peers)
            elif message["type"] == "ping":
                self.say("pong")
            elif message["type"] == "stop":
                note("stop", grace=message["graceSeconds"])
                os._exit(0)

    def keep(self, connection, in_round):
        with self.changed:
            if self.over >= in_round:
                raise ConnectionAbortedError("the round is over")
            self.peers.append(connection)
        return connection


def close(connections):
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    connections.clear()


def connect(supervisor, listener, place):
    """The others' connections at rank 0; at the others, the one to rank 0."""
    here = place["round"]
    if place["rank"] == 0:
        if listener.getsockname()[1] != place["storePort"]:  # in the first round, the port that was reserved before this program started
            listener.close()
            listener = socket.create_server(("", place["storePort"]))
        listener.settimeout(0.05)
        while len(supervisor.peers) < place["world"] - 1:
            with contextlib.suppress(TimeoutError):
                supervisor.keep(listener.accept()[0], here).settimeout(None)
            if supervisor.over >= here:
                raise ConnectionAbortedError("the round is over")
        return
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            supervisor.keep(socket.create_connection((place["storeHost"], place["storePort"])), here)
            return
        if supervisor.over >= here:
            raise ConnectionAbortedError("the round is over")
        time.sleep(0.01)


def reduce(supervisor, place, number, combine):
    def receive(connection):
        data = connection.recv(8, socket.MSG_WAITALL)
        if len(data) < 8:
            raise ConnectionResetError("a peer is gone")
        return int.from_bytes(data, "big", signed=True)

    peers = list(supervisor.peers)
    if supervisor.over >= place["round"]:
        raise ConnectionAbortedError("the round is over")
    if place["rank"] == 0:
        number = combine([number, *(receive(peer) for peer in peers)])
    for peer in peers:
        peer.sendall(number.to_bytes(8, "big", signed=True))
    return number if place["rank"] == 0 else receive(peers[0])


def run_round(supervisor, place, step):
    """Yields the step after each one; ends when FOLDER/finish exists."""
    rank, world = place["rank"], place["world"]
    step = reduce(supervisor, place, step, max)
    supervisor.say("synced", round=place["round"], step=max(step, 0), source="peer")
    yield step
    while True:
        wanted = 1 if rank == 0 and (FOLDER / "finish").exists() else 0
        if reduce(supervisor, place, wanted, max):
            return
        assert reduce(supervisor, place, rank + 1, sum) == world * (world + 1) // 2
        step = max(step, 0) + 1
        note("commit", round=place["round"], step=step, rank=rank, world=world, time=time.time())
        supervisor.say("progress", round=place["round"], step=step, totalSteps=100_000, stepsTotal=step)
        yield step
        if MISCHIEF == "crash-before-joining" and rank == 1 and step == 5:
            (FOLDER / "crashes").touch()
            os._exit(5)
        time.sleep(0.01)


def main():
    note("start")
    if (FOLDER / "crashes").exists() and os.environ["RANK"] == "1":
        sys.exit(5)
    while (FOLDER / "killed").exists() and not (FOLDER / "go-on").exists():  # as if its imports took long
        time.sleep(0.01)
    supervisor, step = Supervisor(), -1
    while True:
        listener = socket.create_server(("", 0))
        note("ready", step=step)
        supervisor.say("ready", step=step, storePort=listener.getsockname()[1])
        place = supervisor.assignments.get()
        try:
            connect(supervisor, listener, place)
            for step in run_round(supervisor, place, step):
                pass
            supervisor.say("finished", step=step)
            return
        except OSError as error:
            if supervisor.over < place["round"]:
                supervisor.say("broken", round=place["round"], reason=str(error))
            with supervisor.changed:
                close(supervisor.peers)
        finally:
            listener.close()


main()
