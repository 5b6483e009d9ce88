"""The pauses that the scripts here make while a test does something to their job."""
import time

LONGEST = 5.0  # seconds: less than the least bound of a step, after which a rank is ended


def pause(folder, seconds, step, steps):
    """Before the step, or after it, while FOLDER/slowly exists. In the second half longer and longer, so that the job is not complete before the test is
    done on a machine where everything takes its time."""
    left = max(1, steps - step) / steps
    end = time.monotonic() + min(LONGEST, seconds * max(1.0, 0.5 / left) ** 2)
    while (folder / "slowly").exists() and (rest := end - time.monotonic()) > 0:
        time.sleep(min(rest, 0.05))
