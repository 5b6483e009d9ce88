"""Observes a PyTorch program that knows nothing of Lockstep: its optimizer steps, and what it does between them.

The supervisor starts the program with LOCKSTEP_WITNESS_PAGE, the path of a page of shared memory that `runtime/witness/page.h` describes; this module
writes it. A module of PyTorch is observed once the program has imported it; a program without PyTorch is not touched. The hooks are public functions:
`register_optimizer_step_post_hook` for the steps, and wrappers around `torch.autograd.backward`, `torch.nn.Module.eval`, `torch.save`, the iterators of
a DataLoader, and the collectives of `torch.distributed` for the activities.

Only the process that takes the first optimizer step writes, also if the program has forked or started it, so workers of a DataLoader and processes that
only help are ignored. The cost is a few stores per activity. An error of the witness switches it off and is written to the page; it never reaches the program.

Python 3.9 or newer; PyTorch 2.4 or newer.
"""
import fcntl
import functools
import os
import sys
import weakref

import lockstep_imports

# What the process does; the numbers are those of page.h.
STEP, DATA, BACKWARD, OPTIMIZER, EVALUATE, SAVE, COLLECTIVE = range(7)

# Indices of the page's 64-bit words, as in page.h.
MAGIC, PID, STEPS, RESUMED_STEP, ACTIVITY, MAY_WAIT, LAST_STEP_AT, NANOSECONDS, ERROR = 0, 1, 2, 3, 4, 5, 6, 8, 16
ERROR_BYTES = 256
PAGE_BYTES = 4096
MAGIC_VALUE = 0x31305353454E5457  # "WTNESS01"

COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
    "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list",
    "scatter_object_list", "send", "recv", "isend", "irecv",
)

# Under which checkpoints name their step: PyTorch's tutorials, Lightning, nanoGPT, fairseq.
STEP_KEYS = ("step", "global_step", "iter_num", "iteration", "num_updates")


class Witness:
    """Writes the page. One thread at a time: the one that trains."""

    def __init__(self, page, path, clock):
        self._page, self._path = page, path
        self._words = memoryview(page).cast("q")
        if self._words[MAGIC] != MAGIC_VALUE:
            raise ValueError("LOCKSTEP_WITNESS_PAGE is no page of a witness")
        self._clock = clock
        self._activity = STEP
        self._since = clock()
        self._stepped = set()  # the optimizers that have taken a part in the newest step
        self._works = weakref.WeakSet()  # collectives that the program has started and not waited for
        self._runs_ahead = False
        self._writes = False
        self._is_compiling = None
        self.loaded_step = -1  # of the newest checkpoint that the program has loaded

    def switch_off(self, error):
        """Writes nothing more; the supervisor logs the error."""
        self._writes = False
        self.enter = self.step = lambda *_: None
        text = f"{type(error).__name__}: {error}".encode(errors="replace")[:ERROR_BYTES - 1]
        start = ERROR * 8
        if not self._page[start]:
            self._page[start:start + len(text)] = text

    def step(self, optimizer, _arguments, _keywords):
        """The hook after each optimizer step."""
        if self._is_traced():
            return
        try:
            # Several optimizers may take turns, as in a GAN, or follow one another, as in a cross-validation.
            is_next = not self._stepped or id(optimizer) in self._stepped
            if is_next:
                self._stepped.clear()
            self._stepped.add(id(optimizer))
            if not self._writes and not self._claim(optimizer):
                return
            self.enter(STEP)
            words = self._words
            words[MAY_WAIT] = self._runs_ahead or self._has_unfinished_work()
            if is_next:
                words[LAST_STEP_AT] = self._since
                words[STEPS] += 1
        except Exception as error:  # noqa: BLE001
            self.switch_off(error)

    def _claim(self, optimizer):
        """Whether this process writes. It asks again with its next step if another one is claiming the page at this moment."""
        words = self._words
        with open(self._path, "rb") as page:
            try:
                fcntl.flock(page, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            owner = words[PID]
            if owner not in (0, os.getpid()) and os.path.exists(f"/proc/{owner}"):
                self.enter = self.step = lambda *_: None
                return False
            # Another process of the program may have taken steps before, which count.
            words[RESUMED_STEP] = max(_recorded_step(optimizer), self.loaded_step) - words[STEPS]
            words[PID] = os.getpid()
        lockstep_imports.write()
        self._runs_ahead = _has_peers() and _is_on_device(optimizer)
        self._writes = True
        return True

    def started(self, work):
        """Of a collective, None if it has ended; else the program waits for it later, by functions that are not observed."""
        if not hasattr(work, "is_completed"):
            return
        try:
            self._works.add(work)
        except TypeError:  # there are no weak references to it
            return
        if self._writes:
            self._words[MAY_WAIT] = 1

    def _has_unfinished_work(self):
        try:
            unfinished = [work for work in self._works if not work.is_completed()]
        except RuntimeError:  # another thread has started one meanwhile
            return True
        self._works = weakref.WeakSet(unfinished)
        return bool(unfinished)

    def forget(self):
        """In a forked process, which may train itself unless the first one does."""
        self._writes = False
        self._stepped = set()
        self._works = weakref.WeakSet()

    def enter(self, activity):
        """Begins `activity` and returns the one that it interrupts."""
        now = self._clock()
        before, since = self._activity, self._since
        self._activity, self._since = activity, now
        if self._writes:
            words = self._words
            words[NANOSECONDS + before] += now - since
            words[ACTIVITY] = activity
        return before

    def activity(self):
        return self._activity

    def _is_traced(self):
        """While torch.compile traces the program, the hooks must leave no trace in the graph."""
        if self._is_compiling is None:
            compiler = getattr(sys.modules.get("torch"), "compiler", None)
            self._is_compiling = getattr(compiler, "is_compiling", lambda: False)
        return self._is_compiling()

    def during(self, activity, function, after=None, on_result=None):
        """`function`, in which the process does `activity`; then `after`, or what it did before."""
        witness = self

        @functools.wraps(function)
        def observed(*arguments, **keywords):
            if witness._is_traced():
                return function(*arguments, **keywords)
            before = witness.enter(activity)
            try:
                result = function(*arguments, **keywords)
            finally:
                witness.enter(before if after is None else after)
            if on_result is not None:
                on_result(result)
            return result

        return observed


def _recorded_step(optimizer):
    """The step from which the optimizer continued, as Adam and its relatives record it; -1 if it records none."""
    for state in optimizer.state.values():
        step = state.get("step") if isinstance(state, dict) else None
        if step is not None:
            return max(0, int(step) - 1)
    return -1


def _has_peers():
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _is_on_device(optimizer):
    """Whether the parameters are on a device, which computes and communicates while the host continues."""
    parameters = (parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"])
    return any(parameter.device.type != "cpu" for parameter in parameters)


def _step_of(checkpoint):
    """The step that a loaded checkpoint names by one of the usual keys; -1 if it names none."""
    if isinstance(checkpoint, dict):
        for key in STEP_KEYS:
            step = checkpoint.get(key)
            if isinstance(step, int) and step >= 0:
                return step
    return -1


def _observe_optimizers(witness, module):
    module.register_optimizer_step_post_hook(lambda *arguments: witness.step(*arguments))


def _observe_backward(witness, module):
    module.backward = witness.during(BACKWARD, module.backward, after=OPTIMIZER)


def _observe_saves(witness, module):
    for name in ("save", "save_file", "async_save"):
        if callable(getattr(module, name, None)):
            setattr(module, name, witness.during(SAVE, getattr(module, name)))


def _observe_files(witness, module):
    _observe_saves(witness, module)
    load = module.load

    @functools.wraps(load)
    def observed(*arguments, **keywords):
        loaded = load(*arguments, **keywords)
        witness.loaded_step = max(witness.loaded_step, _step_of(loaded))
        return loaded

    module.load = observed


def _observe_evaluations(witness, module):
    evaluate = module.Module.eval

    @functools.wraps(evaluate)
    def observed(self):
        if not witness._is_traced():
            witness.enter(EVALUATE)
        return evaluate(self)

    module.Module.eval = observed


def _observe_loaders(witness, module):
    make_iterator = module.DataLoader.__iter__
    seen = set()

    @functools.wraps(make_iterator)
    def observed(self):
        iterator = make_iterator(self)
        kind = type(iterator)
        if kind not in seen:
            seen.update(kind.__mro__)
            _observe_iterator(witness, kind)
        return iterator

    module.DataLoader.__iter__ = observed


def _observe_iterator(witness, kind):
    owner = next(base for base in kind.__mro__ if "__next__" in vars(base))
    if getattr(owner.__next__, "_lockstep", False):
        return
    following = owner.__next__

    @functools.wraps(following)
    def observed(self):
        if witness.activity() not in (STEP, OPTIMIZER):  # an evaluation reads data as well
            return following(self)
        witness.enter(DATA)
        try:
            return following(self)
        finally:
            witness.enter(STEP)

    observed._lockstep = True
    owner.__next__ = observed


def _observe_collectives(witness, module):
    for name in COLLECTIVES:
        if callable(getattr(module, name, None)):
            setattr(module, name, witness.during(COLLECTIVE, getattr(module, name), on_result=witness.started))


# What is done once a module has been imported.
OBSERVED = {
    "torch.optim.optimizer": _observe_optimizers,
    "torch.autograd": _observe_backward,
    "torch.serialization": _observe_files,
    "torch.distributed.checkpoint.state_dict_saver": _observe_saves,
    "safetensors.torch": _observe_saves,
    "torch.nn.modules.module": _observe_evaluations,
    "torch.utils.data.dataloader": _observe_loaders,
    "torch.distributed.distributed_c10d": _observe_collectives,
}


class ImportObserver:
    """A finder on sys.meta_path that finds nothing itself, and has the observed modules changed after their import."""

    def __init__(self, path):
        self._path = path
        self._witness = None
        self._finding = False

    def find_spec(self, name, path=None, target=None):
        if name not in OBSERVED or self._finding:
            return None
        import importlib.util
        self._finding = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            self._observe(spec.loader, OBSERVED[name])
        return spec

    def _observe(self, loader, observe):
        execute = loader.exec_module

        def observed(module):
            execute(module)
            try:
                observe(self.witness(), module)
            except Exception as error:  # noqa: BLE001
                self._give_up(error)

        loader.exec_module = observed

    def _give_up(self, error):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        if self._witness is not None:
            self._witness.switch_off(error)

    def witness(self):
        if self._witness is None:
            import mmap
            import time
            with open(self._path, "r+b") as page:
                self._witness = Witness(mmap.mmap(page.fileno(), PAGE_BYTES), self._path, time.monotonic_ns)
            os.register_at_fork(after_in_child=self._witness.forget)
        return self._witness


def start():
    path = os.environ.get("LOCKSTEP_WITNESS_PAGE")
    if path and os.path.exists(path):
        sys.meta_path.insert(0, ImportObserver(path))
