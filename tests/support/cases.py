"""What the cases of tests in Python share: expectations, waits, the end of what they start."""
import time

# Before a command of a test: the kernel ends the process when the test ends, even by SIGKILL. Not from a thread that ends first.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "TERM", "--"]


# Seconds. It ends a wait for what never comes; a machine that is busy with other things may need minutes for what takes a moment.
LIMIT = 600


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
