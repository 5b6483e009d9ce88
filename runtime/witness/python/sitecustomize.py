"""Python imports this module when it starts, because PYTHONPATH names the archive that it is in.

It starts the witness, and then imports the sitecustomize that Python would have found without it. Nothing that fails here reaches the program.
"""
import sys


def _start():
    archive = __file__.rpartition("/")[0]
    try:
        import lockstep_witness
        lockstep_witness.start()
    finally:
        # The program sees the sys.path that it would have without the witness; PYTHONPATH is still there for the processes that it starts.
        sys.path[:] = [entry for entry in sys.path if entry != archive]
        sys.path_importer_cache.pop(archive, None)


def _import_the_next_one():
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this  # the import of this module still needs the entry


try:
    _start()
except Exception:  # noqa: BLE001
    pass
_import_the_next_one()
