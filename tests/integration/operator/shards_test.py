"""Replicas of the operator share the jobs: each has its part, and the loss of one concerns no other's.

Needs KUBECONFIG of an administrator.
"""
import contextlib
import signal
import time

from build_folder import BUILD
from cases import LIMIT, expect, until
from kube_api import MERGE, api
from operators import JOBS, Operator, create, job, make_namespace, pods_of
from shards import Table
from workers import Worker

PROGRAM = BUILD / "operator/lockstep-operator"
LEASE_SECONDS = 20


class Site:
    """A namespace whose jobs replicas share. Each job has one worker."""

    def __init__(self, prefix):
        self.namespace = make_namespace(api(), prefix)
        self.lease = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/lockstep-leader"
        self.flags = ("--leader-elect", f"--namespace={self.namespace}", f"--watch-namespaces={self.namespace}",
                      f"--lease-duration-seconds={LEASE_SECONDS}", f"--lease-renew-deadline-seconds={LEASE_SECONDS - 4}",
                      "--lease-retry-period-seconds=1")
        self.workers = {}

    def replica(self, name):
        return Operator(PROGRAM, *self.flags, pod=name)

    def table(self):
        return Table(api().request("GET", self.lease)[1])

    def leader_of(self, worker):
        """The name of the replica."""
        return self.table().leader_of(worker.place["job"]["uid"]).rpartition("_")[0]

    def leaders(self):
        return {name: self.leader_of(worker) for name, worker in self.workers.items()}

    def until_even(self, count, *replicas):
        until(f"{count} replicas have even shares", lambda: self.table().is_even(count),
              details=lambda: f"{self.table().counts()}\n" + "\n".join(replica.text() for replica in replicas))

    def add_job(self, operators):
        name = f"job-{len(self.workers)}"
        created = create(api(), self.namespace, job(name, 1, rendezvous={"heartbeatTimeoutSeconds": 600}))  # workers beat when the test says so
        pod, = until("its pod", lambda: pods_of(api(), self.namespace, name), details=lambda: "\n".join(o.text() for o in operators))
        self.workers[name] = Worker(self.namespace, created, pod)

    def rounds(self):
        jobs = api().request("GET", JOBS.format(self.namespace))[1]["items"]
        return {job["metadata"]["name"]: job.get("status", {}).get("rendezvous", {}).get("round", 0) for job in jobs}

    def until_all_beat(self, operator):
        """Each worker knows only the address of this replica."""
        address = address_of(operator)
        for name, worker in self.workers.items():
            until(f"the host of {name} takes a heartbeat", lambda: worker.beat_at(address) == 200, details=operator.text)


def address_of(operator):
    return f"127.0.0.1:{operator.await_record('leading')['rendezvous_port']}"


def jobs_of(operator):
    """Those whose series it exports."""
    series = (name for name in operator.metrics() if name.startswith("lockstep_job_info{"))
    return {label.split('"')[1] for name in series for label in name.partition("{")[2].split(",") if label.startswith("job_name=")}


def shards_of(operator):
    return sum(value for series, value in operator.metrics().items() if series.startswith("lockstep_shards{"))


def test_the_loss_of_a_replica_concerns_its_jobs_only():
    site = Site("shards")
    with contextlib.ExitStack() as stack:
        replicas = {name: stack.enter_context(site.replica(name)) for name in ("a", "b", "c")}
        site.until_even(3, *replicas.values())
        while set(site.leaders().values()) != set(replicas):
            expect(len(site.workers) < 200, f"not every replica gets a job: {site.leaders()}, {site.table().counts()}")
            site.add_job(replicas.values())
        for replica in replicas.values():
            site.until_all_beat(replica)
        until("all jobs are in their first round", lambda: set(site.rounds().values()) == {1}, details=lambda: str(site.rounds()))
        before = site.leaders()
        for name, replica in replicas.items():
            led = {job for job, leader in before.items() if leader == name}
            until("its series are those of its jobs", lambda: jobs_of(replica) == led, details=lambda: f"{jobs_of(replica)}, not {led}")
        addresses = {name: address_of(replica) for name, replica in replicas.items()}
        watches = {job: worker.watch(addresses[before[job]]) for job, worker in site.workers.items()}
        victim = replicas.pop("a")
        victim.process.send_signal(signal.SIGKILL)
        died = time.monotonic()
        lost = {job for job, leader in before.items() if leader == "a"}
        until("the members of its jobs notice", lambda: {job for job in lost if watches[job].is_cut()} == lost)
        until("the others take over", lambda: site.table().is_even(2))
        print(f"     taken over after {time.monotonic() - died:.1f} s; the lease is one of {LEASE_SECONDS} s", flush=True)
        cut = {job for job, watch in watches.items() if watch.is_cut()}
        expect(cut == lost, f"connections of {cut} were cut, of {lost} should have been")
        after = site.leaders()
        expect({job: leader for job, leader in after.items() if job not in lost} == {job: leader for job, leader in before.items() if job not in lost},
               f"jobs moved that the loss does not concern: {before}, then {after}")
        for replica in replicas.values():
            site.until_all_beat(replica)
        until("each job has its series at its leader only", lambda: {
            name: jobs_of(replica) for name, replica in replicas.items()} == {
            name: {job for job, leader in after.items() if leader == name} for name in replicas})
        expect(set(site.rounds().values()) == {1}, f"a round was broken: {site.rounds()}")


def test_a_replica_that_joins_gets_its_share_and_one_that_ends_gives_it_back():
    site = Site("joins")
    with site.replica("a") as first:
        until("it leads all jobs", lambda: shards_of(first) == 16, details=first.text)
        for _ in range(8):
            site.add_job([first])
        site.until_all_beat(first)
        until("all jobs are in their first round", lambda: set(site.rounds().values()) == {1}, details=lambda: str(site.rounds()))
        with site.replica("b") as second:
            site.until_even(2, first, second)
            until("both lead their shares", lambda: (shards_of(first), shards_of(second)) == (8, 8), details=lambda: first.text() + second.text())
            site.until_all_beat(first)
            site.until_all_beat(second)
            # Each leads the changes of its own jobs.
            for name, worker in site.workers.items():
                status, answer = api().request("PATCH", JOBS.format(site.namespace) + f"/{name}", {"spec": {"worker": {"replicas": 2}}}, MERGE)
                expect(status == 200, answer)
                leader = second if site.leader_of(worker) == "b" else first
                until(f"its leader scales {name}", lambda: len(pods_of(api(), site.namespace, name)) == 2, details=leader.text)
            expect({record["job"].partition("/")[2] for record in second.records("planned")} == {
                name for name, leader in site.leaders().items() if leader == "b"}, second.text())
            second.process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            until("the other leads all jobs again", lambda: shards_of(first) == 16, poll=0.02, details=first.text)
            taken = time.monotonic() - asked
            expect(taken < LEASE_SECONDS, f"handed over after {taken:.2f} s: it was not given back")
            print(f"     handed over after {taken:.2f} s", flush=True)
        site.until_all_beat(first)
        expect(set(site.rounds().values()) == {1}, f"a round was broken: {site.rounds()}")


def test_an_operator_that_starts_again_in_its_pod_has_its_jobs_at_once():
    site = Site("again")
    with site.replica("b") as other:
        with site.replica("a") as killed:
            site.until_even(2, killed, other)
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait(LIMIT)
        before = [identity.rpartition("_")[0] for identity in site.table().holders]
        begin = time.monotonic()
        with site.replica("a") as again:
            until("it leads its shards", lambda: shards_of(again) == 8, poll=0.02, details=again.text)
            taken = time.monotonic() - begin
            expect(taken < LEASE_SECONDS, f"after {taken:.2f} s: it has waited for the expiry")
            expect([identity.rpartition("_")[0] for identity in site.table().holders] == before, "shards have moved")
            expect(other.records("leading")[-1]["shards"] == 8, other.text())


def test_waits_for_an_operator_that_is_older_than_shards():
    site = Site("older")
    status, answer = api().request("POST", site.lease.rpartition("/")[0], {
        "metadata": {"name": "lockstep-leader"},
        "spec": {"holderIdentity": "older_1234", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
                 "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}})
    expect(status == 201, answer)
    with site.replica("a") as replica:
        replica.await_record("waiting for an operator that leads all jobs by itself")
        create(api(), site.namespace, job("a", 1))
        expect(shards_of(replica) == 0 and not replica.records("leading"), replica.text())
        expect(api().request("GET", site.lease)[1]["spec"]["holderIdentity"] == "older_1234", replica.text())
        status, answer = api().request("PATCH", site.lease, {"spec": {"holderIdentity": ""}}, MERGE)  # as it does at its end
        expect(status == 200, answer)
        until("it leads all jobs", lambda: shards_of(replica) == 16, details=replica.text)
        until("its pod", lambda: pods_of(api(), site.namespace, "a"), details=replica.text)
