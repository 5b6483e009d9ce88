"""What the cases of tests in Python share: expectations, waits, the end of what they start."""
import concurrent.futures
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


def at_once(subtests, cases, count=6):
    """Runs the cases, a dictionary of functions by their names, so many at once: for those that wait most of their time."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        running = {name: pool.submit(case) for name, case in cases.items()}
        for name, case in running.items():
            with subtests.test(name):
                case.result()
