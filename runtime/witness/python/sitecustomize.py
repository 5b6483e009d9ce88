"""Python imports this module when it starts, because PYTHONPATH names the archive that it is in.

It starts the witness, and then imports the sitecustomize that Python would have found without it. Nothing that fails here reaches the program. A parked
interpreter waits here until it becomes the program.
"""
import os
import sys


def _start():
    """Returns what a parked interpreter has to do next."""
    archive = __file__.rpartition("/")[0]
    is_parked = "LOCKSTEP_PARKED" in os.environ
    try:
        import lockstep_witness
        lockstep_witness.start()
        if is_parked:
            import lockstep_parking
            return lockstep_parking.of_environment()
    except Exception:  # noqa: BLE001
        if is_parked:
            os._exit(1)
    finally:
        # The program sees the sys.path that it would have without the witness; PYTHONPATH is still there for the processes that it starts.
        sys.path[:] = [entry for entry in sys.path if entry != archive]
        sys.path_importer_cache.pop(archive, None)
    return None


def _import_the_next_one():
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":  # Python 2 has no name
            raise
        sys.modules["sitecustomize"] = this  # the import of this module still needs the entry


def _record_imports():
    try:
        import lockstep_imports
        lockstep_imports.start(_parking.names if _parking is not None else ())
    except Exception:  # noqa: BLE001
        pass


_parking = _start()
try:
    _import_the_next_one()
finally:
    if _parking is not None:
        _parking.run()
    _record_imports()
