"""The systems that checkpoint.py measures: each makes one training with saves, and says afterwards what they took."""
import contextlib
import json
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "step"))
from systems import TRAINING, Lockstep, System  # first: it finds tests/support
import s3_server  # noqa: E402
import torch_python  # noqa: E402
from build_folder import BUILD  # noqa: E402

PYTHON = ["torch.save", "dcp.save", "async_save", "lockstep.checkpoint"]


@contextlib.contextmanager
def s3_place(wanted):
    """The URI of a bucket in a server of its own; None where it is not wanted."""
    if not wanted:
        yield None
        return
    if reason := s3_server.missing():
        raise SystemExit(reason)
    with s3_server.s3_server() as (_, port):
        os.environ.update(s3_server.environment(f"http://127.0.0.1:{port}"))
        yield "s3://bucket/bench"


class Saving(Lockstep):
    """As those of bench/step, with saves."""

    restores_in_another_run = True

    def __init__(self, folder, case, programs, steps, every, uri):
        self.every, self.uri = every, uri
        super().__init__(folder, case, case.ranks[0], programs, steps=steps)

    def start(self, command, **environment):
        super().start([*command, *(["--checkpoint-uri", self.uri] if self.every else [])], **environment)

    def manifest(self, training):
        job = super().manifest(training)
        if self.every:
            job["spec"]["checkpoint"] = {"uri": self.uri, "intervalSteps": self.every, "keepLast": 1}  # disks are small
        return job

    def commits(self):
        """When rank 0 had finished each step."""
        records = [json.loads(line) for path in self.ledger.iterdir() for line in path.read_text().splitlines()]
        return {record["step"]: record["time"] for record in records if record["event"] == "commit" and record["rank"] == 0}

    def logged(self, message):
        lines = [json.loads(line) for path in (self.folder / "run").glob("*.log") for line in path.read_text().splitlines()
                 if f'"{message}"' in line]
        return [line for line in lines if line["message"] == message]

    def saves(self):
        return self.logged("checkpoint stored") if self.every else []

    def restored(self):
        """Both ranks' way into the round: connecting, reading and verifying on rank 0, sending it to the other."""
        entered = self.logged("rank entered the round")
        assert any(line["state_from"] == "checkpoint" for line in entered), entered
        return max(line["seconds"] for line in entered)

    def memcpy(self):
        return 0


class Peer(System):
    root_program = rank_program = "python"
    may_be_killed = True
    restores_in_another_run = False

    def __init__(self, folder, case, variant, steps, every, stored):
        ranks = case.ranks[0]
        super().__init__(folder, case, ranks)
        self.name = variant
        settings = self.folder / "settings.json"
        settings.write_text(json.dumps({**TRAINING, **case._asdict(), "variant": variant, "steps": steps, "every": every,
                                        "stored": str(stored), "report": str(self.folder / "report.json")}))
        python, script = torch_python.python_for_benches(), pathlib.Path(__file__).with_name("peer.py")
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            port = str(any_port.getsockname()[1])
        for rank in range(ranks):
            self.start([python, script, settings], PYTHONPATH=str(BUILD / "python"), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(ranks))

    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    def commits(self):
        return {int(step): seconds for step, seconds in self.report()["commits"].items()}

    def saves(self):
        return self.report()["saves"]

    def restored(self):
        return self.report()["restore"]

    def memcpy(self):
        return self.report().get("memcpy", 0)  # that without saves measures it
