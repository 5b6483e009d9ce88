"""Runs the cases of a test program: `main(CASES)` prints a line for each and ends with `N passed, N failed`.

A case is a function without arguments; it fails by raising AssertionError. Names on the command line choose among them.
"""
import time

# Before a command of a test: the kernel ends the process when the test ends, even by SIGKILL. Not from a thread that ends first.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "TERM", "--"]


# Seconds. It ends a wait for what never comes; a machine that is busy with other things may need minutes for what takes a moment.
LIMIT = 300


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def until(what, condition, limit=LIMIT, poll=0.1, details=lambda: ""):
    """Waits for a condition and returns its first true value."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}\n{details()}")
        time.sleep(poll)


def main(cases, names):
    passed = failed = 0
    for case in cases:
        if names and case.__name__ not in names:
            continue
        start = time.monotonic()
        try:
            case()
            passed += 1
            print(f"ok   {case.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
        except AssertionError as problem:
            failed += 1
            print(f"FAIL {case.__name__} ({time.monotonic() - start:.1f} s): {problem}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
