"""The C++ library of the package, by its C interface (c_interface.h). ctypes rather than an extension module, so one wheel serves
every Python: the stable ABI of nanobind begins with Python 3.12.
"""
from __future__ import annotations

import ctypes
import functools
import pathlib

_INT = ctypes.c_int64
_INTS = ctypes.POINTER(ctypes.c_int64)


class Plan(ctypes.Structure):
    """lockstep_plan."""

    _fields_ = [("size", _INT), ("global_batch", _INT), ("seed", ctypes.c_uint64), ("shuffle", ctypes.c_int32), ("drop_last", ctypes.c_int32)]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(pathlib.Path(__file__).with_name("liblockstep.so")))
    plan = ctypes.POINTER(Plan)
    for name, result, arguments in (
            ("lockstep_steps_per_epoch", _INT, [plan]),
            ("lockstep_step_size", _INT, [plan, _INT]),
            ("lockstep_share", None, [_INT, _INT, _INT, _INTS, _INTS]),
            ("lockstep_available_memory", ctypes.c_double, []),
            ("lockstep_store_settings", ctypes.c_char_p, [ctypes.c_char_p]),
            ("lockstep_sample_ids", None, [plan, _INT, _INT, _INT, _INTS])):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found
