"""What all tests in Python have of pytest."""
import tempfile

import pytest

SKIPPED = 77  # SKIP_RETURN_CODE of lockstep_python_test


@pytest.fixture
def folder():
    """The name of a folder for one case, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as name:
        yield name


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """ctest counts a file as skipped in which no case could run."""
    seen = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == pytest.ExitCode.OK and seen.get("skipped") and not seen.get("passed"):
        session.exitstatus = SKIPPED
