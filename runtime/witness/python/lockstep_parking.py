"""A parked interpreter: it has imported what the program imported the last time, and waits to become the next start of the program.

`lockstep program` starts it with the program's own command line while the program trains, and LOCKSTEP_PARKED, the number of a socket. It waits in
`sitecustomize`, before Python looks at the script. The next round sends the variables of its environment, and Python continues as in any other start: the
script, `__main__`, arguments, tracebacks and exit codes are Python's own work.

It takes a fifth of a processor while it imports. A lower priority of the process would be simpler, but nobody except root can raise it again.

What is sent to the supervisor, one line each: "ready", "skipped NAME: ERROR", "unfit REASON". One that is unfit and is used before the supervisor has ended it
starts itself again, without anything imported. So does one in which a package has read a variable that is another in this round, such as RANK.
"""
import _thread
import os
import select
import sys
import time

import lockstep_imports

SHARE = 5  # it uses a processor for one in so many seconds
NAME = "lockstep-parked"
FIRST_FOR_THE_OOM_KILLER = 1000
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm/", "/dev/pts/", "/dev/tty")


def _read(path):
    with open(path) as file:
        return file.read().strip()


def _write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass  # a hardened container


def _handled_signals():
    """Which signals are ignored and caught; the C library has a use of its own for those above 31."""
    lines = _read("/proc/self/status").splitlines()
    return [int(line.split()[1], 16) & 0x7FFFFFFF for line in lines if line.startswith(("SigIgn", "SigCgt"))]


def _opened_device():
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if path.startswith("/dev/") and not path.startswith(HARMLESS_DEVICES):
            return path
    return None


class _Reads(dict):
    """The content of os.environ and os.environb, which remembers what is read from it. One who reads all of it, in its order, makes a copy."""

    def __init__(self, content):
        super().__init__(content)
        self.names = set()
        self._copied_next = []  # from its end

    def __iter__(self):
        names = list(super().__iter__())
        self._copied_next = names[::-1]
        return iter(names)

    def __getitem__(self, name):
        if self._copied_next[-1:] == [name]:
            self._copied_next.pop()
        else:
            self.names.add(name)
        return super().__getitem__(name)


class Parking:
    def __init__(self, socket, record):
        self._socket = socket
        self._record = record
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self.names = []  # what it was to import
        self._read = set()  # the variables that were read meanwhile
        self._is_wanted = False  # the next round has begun, or the supervisor is gone
        self._worked_since = time.process_time()  # of the processor: on a busy machine the rest would grow with the wait for it
        os.set_inheritable(socket, False)

    def find_spec(self, _name, _path=None, _target=None):
        """As a finder on sys.meta_path, which finds nothing, it is called before each import."""
        self._rest((SHARE - 1) * (time.process_time() - self._worked_since))
        self._worked_since = time.process_time()

    def _rest(self, seconds):
        if not self._is_wanted:
            self._is_wanted = bool(self._poll.poll(seconds * 1000))

    def _say(self, text):
        try:
            os.write(self._socket, text.replace("\n", " ").encode(errors="replace")[:500] + b"\n")
        except OSError:
            pass  # it is gone, or no longer interested

    def _import(self):
        """Imports what the record says; returns why this interpreter must not become the program, or None."""
        with open(self._record, encoding="utf-8", errors="surrogateescape") as file:
            recorded = dict(line[:-1].split("\t") for line in file)
        self.names = [entry[1:] for entry in recorded if entry[0] == "+"]
        handled = _handled_signals()
        for name in self.names:
            if self._is_wanted:
                break
            if name in sys.modules:
                continue
            try:
                __import__(name)
            except BaseException as error:  # noqa: BLE001
                self._say(f"skipped {name}: {type(error).__name__}: {error}")
            if _thread._count() > 0:
                return f"{name} has started a thread"
            if _handled_signals() != handled:
                return f"{name} handles signals"
            device = _opened_device()
            if device is not None:
                return f"{name} has opened {device}"
        return self._shadowed({entry[1:]: origin for entry, origin in recorded.items()})

    @staticmethod
    def _shadowed(origins):
        """The program's own folder is searched first, but not here."""
        for name, module in list(sys.modules.items()):
            try:
                origin, _ = lockstep_imports.origin_of(module)
            except TypeError:
                continue
            if name != "__main__" and origins.get(name, origin) != origin:
                return f"the program has another module {name}"
        return None

    def _import_silently(self):
        """What packages write when they are imported does not belong in the log of the running program."""
        streams = {number: os.dup(number) for number in (1, 2)}
        nothing = os.open(os.devnull, os.O_WRONLY)
        for number in streams:
            os.dup2(nothing, number)
        os.close(nothing)
        sys.meta_path.insert(0, self)
        reads = os.environ._data = os.environb._data = _Reads(os.environ._data)
        try:
            return self._import()
        except BaseException as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        finally:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            self._read = {os.fsdecode(name) for name in reads.names}
            os.environ._data = os.environb._data = dict(reads)
            for number, stream in streams.items():
                (sys.stdout, sys.stderr)[number - 1].flush()
                os.dup2(stream, number)
                os.close(stream)

    def _receive(self):
        received = b""
        try:
            while data := os.read(self._socket, 65536):
                received += data
        except ConnectionResetError:  # the end; it did not read what was said last
            pass
        if not received.endswith(b"\0"):
            os._exit(0)  # the supervisor is gone, or does not need it
        os.close(self._socket)
        return [os.fsdecode(variable) for variable in received[:-1].split(b"\0")]

    def run(self):
        """Returns when the interpreter has become the program. An error must not let it become a second one."""
        try:
            self._run()
        except BaseException:  # noqa: BLE001
            os._exit(1)

    def _run(self):
        before = {path: _read(path) for path in ("/proc/self/comm", "/proc/self/oom_score_adj")}
        _write("/proc/self/comm", NAME)
        _write("/proc/self/oom_score_adj", str(FIRST_FOR_THE_OOM_KILLER))
        reason = self._import_silently()
        self._say("ready" if reason is None else f"unfit {reason}")
        for variable in self._receive():
            name, _, value = variable.partition("=")
            if name in self._read and os.environ.get(name) != value:
                reason = f"a package has read {name}"
            os.environ[name] = value
        for path, text in before.items():
            _write(path, text)
        if reason is not None:
            with open("/proc/self/cmdline", "rb") as file:
                command = file.read().split(b"\0")[:-1]
            os.execve(command[0], command, os.environ)


def of_environment():
    """The parking that the environment requests, or None. Programs that this process starts are not parked."""
    socket = os.environ.pop("LOCKSTEP_PARKED", None)
    return None if socket is None else Parking(int(socket), os.environ["LOCKSTEP_WITNESS_IMPORTS"])
