"""The operator's program while the API server fails in one part or another.

Needs KUBECONFIG of an administrator.
"""
from build_folder import BUILD
from cases import expect
from failing_api import HANG, FailingApi
from kube_api import api
from operators import Operator, make_namespace

PROGRAM = BUILD / "operator/lockstep-operator"


def test_a_leader_whose_requests_hang_ends_before_another_leads():
    namespace = make_namespace(api(), "hanging")
    flags = ("--leader-elect", f"--namespace={namespace}", f"--watch-namespace={namespace}", "--lease-duration-seconds=12",
             "--lease-renew-deadline-seconds=4", "--lease-retry-period-seconds=1")
    with FailingApi() as network, Operator(PROGRAM, *flags, kubeconfig=network.kubeconfig) as first:
        first.await_record("leading")
        with Operator(PROGRAM, *flags) as second:
            second.await_record("operator started")
            network.fault = lambda method, path: HANG if "/leases/" in path else None
            second.await_record("leading")
            expect(first.process.poll() == 1, "two lead: " + first.text())
            expect(first.records("lost the leader lease, ending at once"), first.text())
            expect(second.process.poll() is None, second.text())
