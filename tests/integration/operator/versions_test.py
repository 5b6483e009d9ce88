"""The definition and the operator are of different versions, as for a moment in each `helm upgrade` and after a rollback of one of them: no job fails,
no pod is replaced, and a job that the operator cannot read waits until it can.

Changes the definition that all jobs of the control plane share. Needs KUBECONFIG of an administrator.
"""
import copy
import pathlib
import subprocess

import pytest
import yaml

from build_folder import BUILD
from cases import expect, until
from kube_api import MERGE, api
from operators import JOBS, ROOT, Operator, create, job, make_namespace, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
DEFINITION = yaml.safe_load((ROOT / "crds/distributedtrainingjobs.yaml").read_text())
FIELD = "startupDeadlineSeconds"  # of spec.runPolicy, which the older of two versions does not have
SINCE_THEN = {FIELD: 86400}


def schema_of(definition, section):
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][section]["properties"]


def without_the_field():
    """The definition of an older version, in whose status goodput is missing, too."""
    older = copy.deepcopy(DEFINITION)
    del schema_of(older, "spec")["runPolicy"]["properties"][FIELD]
    del schema_of(older, "status")["goodput"]
    return older


def with_another_field():
    """The definition of a version that is newer than the operator."""
    newer = copy.deepcopy(DEFINITION)
    schema_of(newer, "spec")["runPolicy"]["properties"]["futureSeconds"] = {"type": "integer"}
    return newer


def older_program(folder):
    """The operator of a version that does not know FIELD: in its program that name is another."""
    program, name = PROGRAM.read_bytes(), b"\0" + FIELD.encode() + b"\0"
    expect(program.count(name) == 1, f"{FIELD} is {program.count(name)} times a word of {PROGRAM}")
    older = pathlib.Path(folder, PROGRAM.name)
    older.write_bytes(program.replace(name, name.upper()))
    older.chmod(0o700)
    return older


class Team:
    """A namespace and the jobs in it."""

    def __init__(self):
        self.namespace = make_namespace(api(), "versions")
        self.flag = f"--watch-namespaces={self.namespace}"

    def create(self, name, replicas, **sections):
        create(api(), self.namespace, job(name, replicas, **sections))

    def get(self, name):
        return api().request("GET", f"{JOBS.format(self.namespace)}/{name}")[1]

    def patch(self, name, **spec):
        status, answer = api().request("PATCH", f"{JOBS.format(self.namespace)}/{name}", {"spec": spec}, MERGE)
        expect(status == 200, answer)

    def condition(self, name, kind):
        found = [c for c in self.get(name).get("status", {}).get("conditions", []) if c["type"] == kind]
        return found[0] if found else {"status": "Unknown"}

    def pods(self, name, count):
        """The uids of the job's pods, once there are so many."""
        def found():
            uids = {pod["metadata"]["uid"] for pod in pods_of(api(), self.namespace, name)}
            return len(uids) == count and uids
        return until(f"{count} pods of {name}", found, details=lambda: str(self.get(name).get("status")))

    def until_held(self, name, field):
        def held():
            stalled = self.condition(name, "Stalled")
            return stalled["status"] == "True" and stalled
        stalled = until(f"{name} is held", held, details=lambda: str(self.get(name)))
        expect(stalled["reason"] == "VersionMismatch" and stalled["message"].startswith(f"spec.{field}: unknown field"), stalled)

    def until_it_continues(self, name):
        until(f"{name} continues", lambda: self.condition(name, "Stalled")["status"] == "False", details=lambda: str(self.get(name)))
        expect(self.condition(name, "Failed")["status"] != "True", self.condition(name, "Failed"))

    def takes(self, run_policy):
        """Whether the API server has the fields in its schema."""
        asked = job("asked", 1, runPolicy=run_policy)
        return api().request("POST", JOBS.format(self.namespace) + "?dryRun=All&fieldValidation=Strict", asked)[0] == 201

    def apply(self, definition, run_policy, is_taken):
        subprocess.run(["kubectl", "apply", "--server-side", "--force-conflicts", "--filename=-"], input=yaml.safe_dump(definition), check=True,
                       text=True, stdout=subprocess.DEVNULL)
        until("the definition is served", lambda: self.takes(run_policy) == is_taken)


@pytest.fixture
def team():
    made = Team()
    yield made
    made.apply(DEFINITION, SINCE_THEN, True)


def test_what_an_older_operator_cannot_read_waits_for_a_newer_one(team, folder):
    with Operator(older_program(folder), team.flag):
        team.create("runs", 2)
        pods = team.pods("runs", 2)
        team.create("waits", 1, runPolicy=SINCE_THEN)
        team.until_held("waits", f"runPolicy.{FIELD}")
        team.patch("runs", runPolicy=SINCE_THEN)
        team.until_held("runs", f"runPolicy.{FIELD}")
        expect(team.pods("runs", 2) == pods, "a pod was replaced")
        expect(not pods_of(api(), team.namespace, "waits"), "pods by a spec that the operator cannot read")
    with Operator(PROGRAM, team.flag):
        for name in ("runs", "waits"):
            team.until_it_continues(name)
        team.pods("waits", 1)
        expect(team.pods("runs", 2) == pods, "a pod was replaced")


def test_an_older_definition_under_a_newer_operator_and_back(team):
    team.apply(without_the_field(), SINCE_THEN, False)
    with Operator(PROGRAM, team.flag):
        team.create("a", 2)
        pods = team.pods("a", 2)
        written = until("its status", lambda: team.get("a").get("status"))
        expect("goodput" not in written, "the older definition has no goodput")

        team.apply(DEFINITION, SINCE_THEN, True)
        team.patch("a", runPolicy=SINCE_THEN, worker={"replicas": 3})
        pods_of_three = team.pods("a", 3)
        until("a status with goodput", lambda: "goodput" in team.get("a")["status"])

        team.apply(without_the_field(), SINCE_THEN, False)  # a rollback: what the job said in the field is gone
        expect(FIELD not in team.get("a")["spec"].get("runPolicy", {}), "the API server keeps a field that it does not know")
        team.patch("a", worker={"replicas": 4})
        pods_of_four = team.pods("a", 4)
        expect(pods < pods_of_three < pods_of_four, "a pod was replaced")
        for kind in ("Stalled", "Failed"):
            expect(team.condition("a", kind)["status"] != "True", team.condition("a", kind))


def test_a_held_job_continues_when_the_definition_is_rolled_back(team):
    future = {"futureSeconds": 1}
    with Operator(PROGRAM, team.flag):
        team.create("a", 2)
        pods = team.pods("a", 2)
        team.apply(with_another_field(), future, True)
        team.patch("a", runPolicy=future)
        team.until_held("a", "runPolicy.futureSeconds")
        expect(team.pods("a", 2) == pods, "a pod was replaced")
        team.apply(DEFINITION, future, False)
        team.until_it_continues("a")
        expect(team.pods("a", 2) == pods, "a pod was replaced")
