"""A program that knows nothing of Lockstep: the ranks add numbers through a store that rank 0 hosts, by torchrun's variables alone.

sums.py FOLDER STEPS [MISCHIEF]    appends a line of the sample ledger's form to FOLDER for each step
"""
import json
import os
import pathlib
import signal
import socket
import sys
import time

FOLDER, STEPS, MISCHIEF = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
RANK, WORLD, RESTARTS = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
         "TORCHELASTIC_USE_AGENT_STORE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "OMP_NUM_THREADS", "LOCKSTEP_ROUND", "GREETING",
         "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS")


def peers():
    """The others' connections at rank 0; at the others, the one to rank 0."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        server = socket.create_server(address, backlog=WORLD)
        return [server.accept()[0] for _ in range(WORLD - 1)]
    end = time.monotonic() + 300
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def receive(connection):
    data = connection.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        raise ConnectionResetError("a peer is gone")
    return int.from_bytes(data, "big")


def total(connections, number):
    if RANK == 0:
        number += sum(receive(c) for c in connections)
    for connection in connections:
        connection.sendall(number.to_bytes(4, "big"))
    return number if RANK == 0 else receive(connections[0])


def get_into_mischief(step):
    if MISCHIEF == "fail-always" and RANK == 1 and step == 5:
        print("the last words of rank 1", file=sys.stderr)
        sys.exit(42)
    if MISCHIEF == "fail-once" and RANK == 1 and step == 5 and RESTARTS == 0:
        sys.exit(3)


def main():
    if MISCHIEF == "tidy":
        before = json.loads(pathlib.Path(os.environ["LOCKSTEP_NOTICE_FILE"]).read_text())

        def leave(*_):
            notice = pathlib.Path(os.environ["LOCKSTEP_NOTICE_FILE"]).read_text()
            (FOLDER / f"tidied-{RANK}").write_text(json.dumps({"before": before, "at_the_end": json.loads(notice), "time": time.time()}))
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
    variables = {name: os.environ.get(name) for name in NAMES}
    hostfile = os.environ.get("LOCKSTEP_HOSTFILE")
    said = {**variables, "arguments": sys.argv[1:], "hostfile": hostfile and pathlib.Path(hostfile).read_text()}
    (FOLDER / f"variables-{RESTARTS}-{RANK}.json").write_text(json.dumps(said))
    connections = peers()
    ledger = os.open(FOLDER / f"{RANK}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for step in range(STEPS):
        get_into_mischief(step)
        expected = WORLD * (WORLD + 1) // 2
        assert total(connections, RANK + 1) == expected
        line = {"event": "commit", "round": RESTARTS + 1, "step": step, "rank": RANK, "time": time.time()}
        os.write(ledger, (json.dumps(line, separators=(",", ":")) + "\n").encode())
        time.sleep(0.02)
    for connection in connections:
        connection.close()
    if MISCHIEF == "late" and RANK == 0:
        (FOLDER / "is-late").touch()
        while not (FOLDER / "go-on").exists():
            time.sleep(0.01)
        sys.exit(7 if RESTARTS == 0 else 0)



try:
    main()
except OSError:
    if MISCHIEF in ("fail-always", "killed", "tidy"):  # who is at fault is to be clear; SIGTERM is on its way
        time.sleep(60)
    raise
