"""A debug option: which samples this rank contributed to which step, and which steps it finished, as lockstep-rank writes it
(runtime/train/step/sample_ledger.h).
"""
from __future__ import annotations

import json
import os
import time


class SampleLedger:
    def __init__(self) -> None:
        self._folder = os.environ.get("LOCKSTEP_SAMPLE_LEDGER")
        self._process = f"{os.environ.get('LOCKSTEP_POD_NAME', 'python')}-{os.getpid()}"
        self._file: int | None = None
        self._place = {"round": 0, "rank": 0}

    def enter_round(self, number: int, rank: int) -> None:
        if not self._folder:
            return
        self._place = {"round": number, "rank": rank}
        if self._file is not None:
            os.close(self._file)
        self._file = os.open(f"{self._folder}/{self._process}-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def contribute(self, step: int, ids: list[int]) -> None:
        self._write({"event": "contribute", **self._place, "step": step, "ids": ids})

    def commit(self, step: int) -> None:
        self._write({"event": "commit", **self._place, "step": step, "time": time.time()})

    def _write(self, record: dict[str, object]) -> None:
        if self._file is not None:  # one write for each line, so a killed process leaves whole lines
            os.write(self._file, json.dumps(record, separators=(",", ":")).encode() + b"\n")
