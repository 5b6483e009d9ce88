"""Without a cluster these tests are skipped."""
import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def cluster():
    if "LOCKSTEP_CLUSTER" not in os.environ:
        pytest.skip("no cluster: LOCKSTEP_CLUSTER is not set")
