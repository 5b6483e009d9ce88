"""Records what the program has imported when it takes its first step, so that the next start of it finds the same imported (lockstep_parking.py).

The record is LOCKSTEP_WITNESS_IMPORTS, an anonymous file of `lockstep program`. It has a line for each module, in the order in which the imports began, because a
package may change what another one does: "+" if a parked interpreter may import it, else "-", its name, a tab, and its file.

A module may be imported earlier if nothing that the program does itself can change what the import does. So it must belong to the standard library or
to an installed package, and must have been imported before the program changed its environment: scripts set HF_HOME or OMP_NUM_THREADS, and then import.
A package that changes the environment while it is imported does so again.
"""
import os
import sys

LONGEST = 1 << 20
STANDARD_LIBRARY = os.path.dirname(os.__file__) + "/"


def origin_of(module):
    """The file of a module, and the name under which it was imported; no attribute of a lazy module is touched."""
    spec = vars(module).get("__spec__")
    origin = getattr(spec, "origin", None)
    return (origin if isinstance(origin, str) else "", getattr(spec, "name", None))


def _is_installed(path):
    return path.startswith(STANDARD_LIBRARY) or "/site-packages/" in path or "/dist-packages/" in path


def _is_below(folder, path):
    """Whether the file belongs to the script in that folder, which may hold a virtual environment as well."""
    return folder is not None and path.startswith(folder) and not _is_installed("/" + path[len(folder):])


def _is_in_an_import(frame):
    """Whether the code of an installed package runs because it is imported, and not because the program calls it."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path == "<frozen importlib._bootstrap>":
            return True
        name = frame.f_globals.get("__name__")
        if name == "__main__" or not (path.startswith("<frozen ") or _is_installed(path)):
            return False
        frame = frame.f_back
    return False


class ImportRecord:
    """As a finder on sys.meta_path, which finds nothing, it is called before each import."""

    def __init__(self, path, parked):
        self._path = path
        self._begun = dict.fromkeys(parked)  # as an ordered set
        self._names = None  # imported before the program changed its environment; None: it has not
        self._changes = {"putenv": os.putenv, "unsetenv": os.unsetenv}  # os.environ calls these
        for name, change in self._changes.items():
            setattr(os, name, self._noting(change))
        sys.meta_path.insert(0, self)

    def find_spec(self, name, _path=None, _target=None):
        self._begun[name] = None

    def _noting(self, change):
        def noted(*arguments):
            if self._names is None and not _is_in_an_import(sys._getframe(1)):
                self._close()
            return change(*arguments)
        return noted

    def _close(self):
        if self._names is None:
            self._names = set(list(sys.modules))
            for name, change in self._changes.items():
                setattr(os, name, change)

    def write(self):
        self._close()
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        main = vars(sys.modules["__main__"])
        is_script = main.get("__spec__") is None and "__file__" in main
        own_folder = os.path.dirname(os.path.abspath(main["__file__"])) + "/" if is_script else None
        lines = []
        for name in [*self._begun, *(name for name in list(sys.modules) if name not in self._begun)]:
            try:
                origin, imported_as = origin_of(sys.modules[name])
            except (KeyError, TypeError):  # it is not there, or no module
                continue
            may_be_parked = name in self._names and name == imported_as and _is_installed(origin) and not _is_below(own_folder, origin)
            lines.append(f"{'+' if may_be_parked else '-'}{name}\t{origin}\n")
        text = "".join(lines).encode("utf-8", "surrogateescape")
        with open(self._path, "wb") as file:
            file.write(text if len(text) <= LONGEST else b"")


_record = None


def start(parked):
    """Before the program's first line. `parked`: what was imported before, in its order."""
    global _record
    path = os.environ.get("LOCKSTEP_WITNESS_IMPORTS")
    if path and os.path.exists(path):
        _record = ImportRecord(path, parked)


def write():
    """At its first step. Without a record nothing is parked."""
    global _record
    record, _record = _record, None
    try:
        if record is not None:
            record.write()
    except Exception:  # noqa: BLE001
        pass
