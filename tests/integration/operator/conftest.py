"""Without a control plane (with-control-plane) these tests are skipped. Each fails where the chart's roles lack a right."""
import os

import pytest

import rights


@pytest.fixture(scope="session", autouse=True)
def control_plane():
    if "LOCKSTEP_CLUSTER" not in os.environ:
        pytest.skip("LOCKSTEP_CLUSTER is not set")


@pytest.fixture(autouse=True)
def rights_suffice(control_plane, request):
    """The next cases would wait for the same thing, which never comes."""
    since = rights.log_size()
    yield
    missing = rights.missing(since)
    if missing:
        request.session.shouldstop = "the chart's roles lack a right"
        pytest.fail("\n".join(["the chart's roles lack rights:", *map(str, missing)]), pytrace=False)
