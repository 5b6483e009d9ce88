"""What all tests in Python have of pytest."""
import resource
import tempfile

import pytest

SKIPPED = 77  # SKIP_RETURN_CODE of lockstep_python_test


@pytest.fixture
def folder():
    """The name of a folder for one case, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as name:
        yield name


def pytest_terminal_summary(terminalreporter):
    """What a suite costs, on a machine where it shares the processors: its own seconds and those of the processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    terminalreporter.write_line(f"{sum(each.ru_utime + each.ru_stime for each in used):.0f} s of processor time")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """ctest counts a file as skipped in which no case could run."""
    seen = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == pytest.ExitCode.OK and seen.get("skipped") and not seen.get("passed"):
        session.exitstatus = SKIPPED
