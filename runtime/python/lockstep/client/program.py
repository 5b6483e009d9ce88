"""What is submitted: a script and its arguments."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import secrets
import typing

from lockstep.client.source import script_of
from lockstep.errors import LockstepError

# The limit of Kubernetes for the data of a ConfigMap.
_LONGEST = 1024 * 1024
_LONGEST_NAME = 50  # of a job: crds/schema.yaml

Function = typing.Callable[..., object]
Path = typing.Union[str, "os.PathLike[str]"]
Arguments = typing.Union[typing.Mapping[str, object], typing.Sequence[object], None]


@dataclasses.dataclass(frozen=True)
class Program:
    file: str
    text: str
    arguments: list[str]

    @property
    def stem(self) -> str:
        return pathlib.PurePath(self.file).stem


def program_of(given: Function | Path, arguments: Arguments) -> Program:
    found = _from_file(pathlib.Path(given), arguments) if isinstance(given, (str, os.PathLike)) else _from_function(given, arguments)
    size = len(found.text.encode())
    if size + len(found.file) > _LONGEST:
        raise LockstepError(f"{found.file} has {size} bytes; a script may have at most {_LONGEST - len(found.file)}: put what is large into the image "
                            "or on a volume")
    return found


def job_name(program: Program, name: str | None) -> str:
    """As it is given; else after the program, with random digits so that the same program can be submitted again."""
    if name is not None:
        return name
    stem = re.sub("[^a-z0-9]+", "-", program.stem.lower()).strip("-").lstrip("0123456789-") or "job"
    return f"{stem[:_LONGEST_NAME - 5].rstrip('-')}-{secrets.token_hex(2)}"


def _from_function(function: Function, arguments: Arguments) -> Program:
    if not isinstance(arguments, (typing.Mapping, type(None))):
        raise LockstepError('arguments of a function must be a dict, such as {"lr": 0.1}')
    text = script_of(function, arguments or {})
    return Program(f"{function.__name__}.py", text, [])


def _from_file(path: pathlib.Path, arguments: Arguments) -> Program:
    if path.suffix in (".yaml", ".yml", ".json"):
        raise LockstepError(f"{path} is a manifest: use submit_manifest")
    if isinstance(arguments, (typing.Mapping, str)):
        raise LockstepError('arguments of a script must be a list, such as ["--lr", "0.1"]')
    try:
        text = path.read_text()
        compile(text, str(path), "exec")
    except OSError as error:
        raise LockstepError(f"the script cannot be read: {error}") from None
    except (SyntaxError, ValueError) as error:  # ValueError: no text
        raise LockstepError(f"{path} is not a Python script: {error}") from None
    return Program(path.name, text, [str(argument) for argument in arguments or []])
