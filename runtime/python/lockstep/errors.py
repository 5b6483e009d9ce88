"""What the package raises."""

# As of a process that SIGTERM has ended: the supervisor counts it as preempted, not as failed.
_PREEMPTED = 143


class LockstepError(Exception):
    """The package is used in a way that cannot work, or a job cannot be submitted or read; the message says what to change."""


class JobFailed(LockstepError):
    """The job that was waited for has failed; the message is that of its condition Failed."""


class Stopped(SystemExit):
    """The job, the pod or its node is being stopped. Ends the script as `sys.exit` does; `finally` blocks run."""

    def __init__(self) -> None:
        super().__init__(_PREEMPTED)


class RoundBroken(RuntimeError):
    """The round is over: a rank has left it, or a connection has failed. Internal. PyTorch reports the same as RuntimeError."""
