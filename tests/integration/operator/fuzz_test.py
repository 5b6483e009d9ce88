"""Specs that nobody would write, made from the definition's own schema: each is refused, or its job runs, or says why it does not.
And changes that nobody should make to a job that runs: it says what is wrong, and goes on once they are taken back.

Needs KUBECONFIG of an administrator.
LOCKSTEP_TEST_SEED, which is printed, chooses some values of each field; LOCKSTEP_TEST_ALL=1 tries all of them.
"""
import collections
import concurrent.futures
import copy
import itertools
import json
import os
import random

from build_folder import BUILD
from cases import expect, until
from kube_api import api
from operators import JOBS, Operator, create, job, make_namespace, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
SEED = int(os.environ.get("LOCKSTEP_TEST_SEED", "7"))
ALL = bool(os.environ.get("LOCKSTEP_TEST_ALL"))
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedtrainingjobs.lockstep.dev"
MOST_PODS = 20        # a job of 10,000 is another test's business
VALUES = 99 if ALL else 3  # of each field
PAIRS = 250 if ALL else 100
CHANGES = 250 if ALL else 100
LANES = 6
MOST_RECONCILES = 60  # of one job, on average: no hot loop
SECTIONS = {"checkpoint": {"uri": "file:///c"}, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 8}}
ABSENT = object()
ENDED = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "Gone", "message": "it was deleted in its time"}]}}


def sample(schema):
    """A value that the schema itself would accept."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: sample(schema["properties"][name]) for name in schema.get("required", [])}
    if kind == "array":
        return [sample(schema["items"]) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    return False if kind == "boolean" else "a"


def values(schema):
    """Around the bounds, and of the wrong type."""
    kind = schema.get("type")
    if "enum" in schema:
        return [*schema["enum"], "Nonsense", "", 1]
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**31)
        return [low, low - 1, high, high + 1, 0, -1, 1, "one", 1.5]
    if kind == "boolean":
        return [True, False, "yes"]
    if kind == "array":
        item = sample(schema["items"])
        return [[], [item], [item, item], [item] * (min(schema.get("maxItems", 20), 1000) + 1), [None], {}]
    if kind == "object":
        return [{}, sample(schema), [], "text"]
    longest = schema.get("maxLength", 64)
    return ["", "a", "A b/c", "a" * longest, "a" * (longest + 1), "\U0001f600", 3]


def fields(schema, path=("spec",)):
    """Every field of ours; of the pod template only the template as a whole."""
    for name, child in schema.get("properties", {}).items():
        where = path + (name,)
        for value in values(child) + [ABSENT]:
            yield where, value
        if name != "template":
            yield from fields(child, where)
        if child.get("type") == "array" and child["items"].get("type") == "object":
            for inner, grandchild in child["items"].get("properties", {}).items():
                for value in values(grandchild):
                    yield where, [{**sample(child["items"]), inner: value}]


def some_fields(chosen):
    """A few values of every field."""
    by_path = collections.defaultdict(list)
    for where, value in fields(spec_schema()):
        by_path[where].append((where, value))
    return [change for changes in by_path.values() for change in chosen.sample(changes, min(VALUES, len(changes)))]


def changed(document, *changes):
    document = copy.deepcopy(document)
    for path, value in changes:
        parent = document
        for key in path[:-1]:
            child = parent.get(key) if isinstance(parent, dict) else None
            if not isinstance(child, dict):
                if not isinstance(parent, dict):
                    return document
                child = parent[key] = copy.deepcopy(SECTIONS.get(key, {}))
            parent = child
        if value is ABSENT:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = value
    return document


def text_of(changes):
    return "; ".join(".".join(p) + " = " + ("absent" if v is ABSENT else json.dumps(v)[:60]) for p, v in changes)


def pods_asked(document):
    spec = document.get("spec")
    worker = spec.get("worker") if isinstance(spec, dict) else None
    numbers = [worker.get("replicas") if isinstance(worker, dict) else 0, spec.get("standbyReplicas") if isinstance(spec, dict) else 0]
    return sum(n for n in numbers if isinstance(n, (int, float)))


def condition(document, kind):
    return next((c for c in document.get("status", {}).get("conditions", []) if c["type"] == kind and c["status"] == "True"), None)


class Fuzz:
    def __init__(self):
        self.namespace = make_namespace(api(), "fuzz")
        self.path = JOBS.format(self.namespace)
        self.numbers = itertools.count()

    def get(self, name):
        return api().request("GET", f"{self.path}/{name}")[1]

    def replace_spec(self, name, spec):
        return api().request("PATCH", f"{self.path}/{name}", [{"op": "replace", "path": "/spec", "value": spec}],
                           "application/json-patch+json")

    def settled(self, name):
        """The job, once the operator has answered its present spec: with pods, without on purpose, or with a reason."""
        def look():
            document = self.get(name)
            if document.get("kind") == "Status":
                return ENDED  # by its ttlSecondsAfterFinished
            status = document.get("status", {})
            if status.get("observedGeneration") != document["metadata"]["generation"]:
                return None
            said = condition(document, "Failed") or condition(document, "Stalled")
            if said:
                expect(said["reason"] and said["message"], f"{name}: {said} says nothing")
                return document
            managed_elsewhere = document["spec"].get("managedBy", "lockstep.dev/operator") != "lockstep.dev/operator"
            wanted = 0 if document["spec"].get("suspend") else pods_asked(document)
            return document if managed_elsewhere or len(pods_of(api(), self.namespace, name)) == wanted else None
        document = self.get(name)
        if document.get("spec", {}).get("managedBy", "lockstep.dev/operator") != "lockstep.dev/operator":
            return document
        return until(f"{name} runs or says why not", look, poll=0.02, details=lambda: json.dumps(self.get(name))[:3000])

    def try_one(self, index, changes):
        name = f"fuzz-{index}"
        document = changed({**job(name, 2), "metadata": {"name": name}}, *changes)
        document["spec"].setdefault("suspend", False) if isinstance(document.get("spec"), dict) else None
        query = "?dryRun=All" if pods_asked(document) > MOST_PODS else ""
        status, answer = api().request("POST", self.path + query, document)
        try:
            if status != 201:
                expect(status in (400, 422) and answer.get("message"), f"{status} {answer}")
                return "refused"
            if query:
                return "accepted, not made"
            outcome = self.settled(name)
            api().request("DELETE", f"{self.path}/{name}")
            return "said why not" if condition(outcome, "Failed") or condition(outcome, "Stalled") else "ran"
        except AssertionError as problem:
            raise AssertionError(f"{text_of(changes)}: {problem}") from None


def spec_schema():
    return api().request("GET", DEFINITION)[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def expect_no_hot_loop(operator, jobs):
    made = reconciles(operator)
    expect(made < MOST_RECONCILES * max(jobs, 1), f"{made} reconciles of {jobs} jobs")
    expect(operator.process.poll() is None, operator.text()[-3000:])


def reconciles(operator):
    return sum(v for s, v in operator.metrics().items() if s.startswith("controller_runtime_reconcile_total"))


def test_any_spec_is_refused_or_runs_or_says_why_not():
    chosen = random.Random(SEED)
    single = [(change,) for change in some_fields(chosen)]
    pairs = [tuple(change for change, in chosen.sample(single, 2)) for _ in range(PAIRS)]
    tries = single + pairs
    fuzz = Fuzz()
    with Operator(PROGRAM, f"--watch-namespaces={fuzz.namespace}", f"--namespace={fuzz.namespace}") as operator:
        operator_started(fuzz)
        with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            outcomes = list(pool.map(lambda item: fuzz.try_one(*item), enumerate(tries)))
        counts = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
        print(f"     {len(tries)} specs, seed {SEED}: {counts}")
        expect_no_hot_loop(operator, len(tries) - counts.get("refused", 0))
        expect(all(counts.get(kind) for kind in ("refused", "ran", "said why not")), counts)


def operator_started(fuzz):
    create(api(), fuzz.namespace, job("first", 1))
    fuzz.settled("first")


class Victim:
    """A job that runs, and is put right after each mistake."""

    def __init__(self, fuzz):
        self.fuzz = fuzz
        self.begin()

    def begin(self):
        self.name = f"victim-{next(self.fuzz.numbers)}"
        self.spec = create(api(), self.fuzz.namespace, job(self.name, 2))["spec"]
        self.fuzz.settled(self.name)

    def suffer(self, change):
        """What came of it, in a word; then the job runs as before."""
        broken = changed({"spec": self.spec}, change)
        if pods_asked(broken) > MOST_PODS:
            return "left out"
        status, answer = self.fuzz.replace_spec(self.name, broken.get("spec"))
        if status != 200:
            expect(status in (400, 422) and answer.get("message"), f"{status} {answer}")
            return "refused"
        outcome = self.fuzz.settled(self.name)
        if self.ended(outcome):
            return "ended"
        said = "said why not" if condition(outcome, "Stalled") else "ran"
        status, answer = self.fuzz.replace_spec(self.name, self.spec)
        expect(status == 200, f"taking it back: {answer}")
        recovered = self.fuzz.settled(self.name)
        if self.ended(recovered):
            return "ended"
        expect(not condition(recovered, "Stalled"), recovered["status"])
        return said

    def ended(self, outcome):
        """Whether the job is over, as one with a deadline of a second is sooner or later; another one begins then. A mistake ends none."""
        failed = condition(outcome, "Failed")
        if not failed:
            return False
        expect(failed["reason"] != "InvalidSpec", f"{failed['reason']} ended the job")
        api().request("DELETE", f"{self.fuzz.path}/{self.name}")
        self.begin()
        return True


def test_a_mistake_in_a_running_job_is_undone_by_taking_it_back():
    chosen = random.Random(SEED)
    tries = chosen.sample(list(fields(spec_schema())), CHANGES)
    fuzz = Fuzz()

    def all_of(lane):
        victim, counts, wrong = Victim(fuzz), collections.Counter(), []
        for change in tries[lane::LANES]:
            try:
                counts[victim.suffer(change)] += 1
            except AssertionError as problem:
                wrong.append(f"{text_of([change])}: {problem}")
                victim.begin()
        return counts, wrong

    with Operator(PROGRAM, f"--watch-namespaces={fuzz.namespace}", f"--namespace={fuzz.namespace}") as operator:
        operator_started(fuzz)
        with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            results = list(pool.map(all_of, range(LANES)))
        counts = sum((counts for counts, _ in results), collections.Counter())
        print(f"     {len(tries)} changes, seed {SEED}: {dict(counts)}")
        wrong = [problem for _, problems in results for problem in problems]
        expect(not wrong, "\n".join(wrong))
        expect_no_hot_loop(operator, len(tries))
        expect(all(counts[kind] for kind in ("refused", "ran", "said why not")), counts)
