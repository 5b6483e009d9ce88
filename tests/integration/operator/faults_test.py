"""operator_fault_test (fault_test.cc), whose operators have the rights of the chart in the namespaces that are made for them here.

Needs KUBECONFIG of an administrator, as which the program plays the user and the kubelet. LOCKSTEP_TEST_SEED and LOCKSTEP_TEST_ALL=1 choose the faults.
"""
import os
import subprocess

from build_folder import BUILD
from cases import ENDS_WITH_US, expect
from kube_api import api
from operators import kubeconfig_for, make_namespace

PROGRAM = BUILD / "tests/integration/operator/operator_fault_test"
SITES = 10  # one for each operator that begins in a namespace of its own


def test_no_fault_changes_how_a_job_ends_up():
    namespaces = ",".join(make_namespace(api(), f"faults-{site}") for site in range(SITES))
    environment = {**os.environ, "LOCKSTEP_FAULTS_NAMESPACES": namespaces,
                   "LOCKSTEP_FAULTS_KUBECONFIG": kubeconfig_for(f"--watch-namespaces={namespaces}")}
    program = subprocess.run([*ENDS_WITH_US, PROGRAM], env=environment)
    expect(program.returncode == 0, f"operator_fault_test exited with {program.returncode}")
