"""Without a control plane (with-control-plane) these tests are skipped."""
import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def control_plane():
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set")
