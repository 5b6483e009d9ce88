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


def until(what, condition, limit=LIMIT, poll=None, details=lambda: ""):
    """Waits for a condition and returns its first true value. `poll`: seconds between two looks, where it matters when it is seen."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > limit:
            raise AssertionError(f"not within {limit} s: {what}\n{details()}")
        time.sleep(poll or growing_pause(waited))


def growing_pause(waited, least=0.1, most=0.5):
    """Seconds until the next look: the longer it takes, the less a look too late costs compared with all the looks."""
    return min(most, max(least, waited / 50))


def at_once(subtests, cases, count=6):
    """Runs the cases, a dictionary of functions by their names, so many at once: for those that wait most of their time."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        running = {name: pool.submit(case) for name, case in cases.items()}
        for name, case in running.items():
            with subtests.test(name):
                case.result()
