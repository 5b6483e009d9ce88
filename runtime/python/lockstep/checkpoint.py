"""Storage for torch.distributed.checkpoint (DCP): checkpoints of any state in memory first, stored in a folder or bucket while training continues.

    import torch.distributed.checkpoint as dcp
    from lockstep import checkpoint

    dcp.save(state, storage_writer=checkpoint.Writer("/checkpoints", step))     # waits for one copy
    ...
    reader = checkpoint.Reader("/checkpoints")                                  # the newest, in memory or stored
    if reader.step is not None:
        dcp.load(state, storage_reader=reader)

The memory is that of memory.py: a process that is started again finds it. What is stored has DCP's own format, so its readers read it, and
`Reader` reads what they have written.
"""
from __future__ import annotations

from lockstep.checkpoint_reader import Reader
from lockstep.checkpoint_writer import Writer

__all__ = ["Reader", "Writer"]
