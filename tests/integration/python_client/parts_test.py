"""Parts of the client alone: which lines of which pod are of a rank, and how a log is followed over a broken connection."""
import json
import linecache
import pathlib
import sys

from cases import expect

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from lockstep.client import pod_logs  # noqa: E402
from lockstep.client.kube import Refused, Unreachable  # noqa: E402
from lockstep.client.progress import line_of  # noqa: E402
from lockstep.client.rank_lines import may_be_of, newest_places  # noqa: E402
from lockstep.client.source import script_of  # noqa: E402

JOB = {"metadata": {"name": "fashion"}, "spec": {"worker": {}}, "status": {"state": "Running", "rendezvous": {"round": 3, "worldSize": 4}}}
DONE = {**JOB, "status": {"state": "Complete", "conditions": [{"type": "Complete", "status": "True"}]}}


def placed(local_rank, rank, round_number):
    return json.dumps({"level": "info", "message": "rank placed", "local_rank": local_rank, "rank": rank, "round": round_number})


# The ranks of pod 1 were 2 and 3, until pod 0 left and came back behind it.
MOVED = {
    "fashion-worker-0": [placed(0, 0, 2), "[rank 0 round 2] early", placed(0, 2, 3), placed(1, 3, 3), "[rank 2 round 3] late"],
    "fashion-worker-1": [placed(0, 2, 2), placed(0, 0, 3), placed(1, 1, 3), '{"message":"serving metrics"}', "[local rank 0] own", "[rank 1 round 3] one",
                         "[rank 0 round 3] zero"],
}


def pod(name, uid="1", state="running"):
    return {"metadata": {"name": name, "uid": uid, "labels": {"lockstep.dev/job": "fashion"}},
            "status": {"containerStatuses": [{"name": "trainer", "state": {state: {}}}]}}


class Kube:
    """Pods and their logs, as lockstep.client.kube.Kube shows them."""

    def __init__(self, logs, streams=()):
        self.logs, self.streams, self.since, self.pods = logs, list(streams), [], [pod(name) for name in logs]

    def list_pods(self, selector):
        expect(selector == "app.kubernetes.io/name=lockstep-worker,lockstep.dev/job=fashion", selector)
        return self.pods

    def log(self, name, container, tail=None):
        expect(container == "trainer", container)
        if self.logs[name] is None:
            raise Refused("container is waiting to start", 400)
        return self.logs[name]

    def follow_log(self, name, container, since_seconds):
        self.since.append(since_seconds)
        for line in self.streams.pop(0):
            if isinstance(line, Exception):
                raise line
            if callable(line):
                line()
            else:
                yield line


def read(rank, logs=None):
    return list(pod_logs.PodLogs(Kube(logs or MOVED)).read(JOB, rank))


def test_lines_of_a_rank_come_from_the_pod_that_has_it():
    expect(read(1)[-1] == "[rank 1 round 3] one" and not any("zero" in line or "own" in line for line in read(1)), f"{read(1)}")
    expect('{"message":"serving metrics"}' in read(1) and "[local rank 0] own" in read(0) and read(0)[-1].endswith("zero"), f"{read(0)}")
    expect(read(2)[-1].endswith("late") and not any("early" in line for line in read(2)), f"{read(2)}")
    expect(read(0, {"fashion-worker-1": MOVED["fashion-worker-1"], "fashion-worker-2": None})[-1].endswith("zero"), "a pod that waits hides the others")


def test_a_rank_that_nobody_has():
    try:
        read(4)
    except Exception as error:
        expect("its ranks are 0 to 3" in str(error), f"{error}")
    else:
        raise AssertionError("no error")


def test_a_broken_connection_is_resumed_without_lines_twice(monkeypatch):
    monkeypatch.setattr(pod_logs, "_PAUSE", 0)
    kube = Kube({"fashion-worker-0": [placed(0, 0, 3)]})
    end = lambda: kube.pods.__setitem__(0, pod("fashion-worker-0", state="terminated"))  # noqa: E731
    kube.streams = [["2026-01-02T03:04:05.1Z [rank 0 round 3] a", "2026-01-02T03:04:05.25Z [rank 0 round 3] b", Unreachable("gone")],
                    ["2026-01-02T03:04:05.25Z [rank 0 round 3] b", "2026-01-02T03:04:05.300000001Z [rank 0 round 3] c"],
                    ["2026-01-02T03:04:06Z [rank 1 round 3] other", "2026-01-02T03:04:07Z d", end]]
    found = list(pod_logs.PodLogs(kube).follow([JOB, DONE], 0))
    expect(found == ["[rank 0 round 3] a", "[rank 0 round 3] b", "[rank 0 round 3] c", "d"], f"{found}")
    expect(kube.since[0] is None and all(since > 60 for since in kube.since[1:]), f"{kube.since}")


def test_places_are_those_of_the_newest_round():
    found = newest_places(MOVED["fashion-worker-0"])
    expect(sorted((rank, place.round, place.local_rank) for rank, place in found.items()) == [(2, 3, 0), (3, 3, 1)], f"{found}")
    expect(may_be_of("[rank 2 round 1] x", found[2]) and not may_be_of("[rank 20 round 1] x", found[2]), "another rank")


def test_the_line_of_progress():
    for status, wanted in (({}, "Created"), ({"state": "Running", "progress": {"step": 7}}, "Running  step 7"),
                           ({"state": "Running", "progress": {"step": 1, "totalSteps": 4, "loss": 0.123456}},
                            "Running  [=====               ] step 1 of 4 (25 %)  loss 0.1235")):
        expect(line_of(status) == wanted, line_of(status))


CELL = """
import json as js
from collections import OrderedDict

class Model:
    width = 4

    def size(self):
        return self.width

@staticmethod
def unused():
    pass

def train(count: "Model" = None):
    return js.dumps(OrderedDict(size=Model().size()))
"""


def test_a_class_of_a_notebook_is_sent_with_the_function():
    """A notebook keeps the text of its cells where Python looks for sources, and has no file."""
    name = "<ipython-input-1-lockstep>"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    notebook = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), notebook)
    script = script_of(notebook["train"], {})
    ran = {"__name__": "elsewhere"}
    exec(script, ran)
    expect(ran["train"]() == '{"size": 4}' and "unused" not in script, script)
