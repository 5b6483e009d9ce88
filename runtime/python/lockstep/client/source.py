"""The source of a function of a notebook, with what it uses, as a script that runs where the notebook is not.

What the function uses of the names around it becomes part of the script: imports are repeated; functions, classes and plain values of the same
notebook are written before it. Everything else is rejected here, with its name, because in a pod it would be a NameError minutes later.
"""
from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import symtable
import textwrap
import types
import typing

from lockstep.errors import LockstepError

# The first line of the script, also where sources are searched for names: an annotation is no use of a name.
_FUTURE = "from __future__ import annotations\n"


def script_of(function: typing.Callable[..., object], arguments: typing.Mapping[str, object]) -> str:
    """Raises LockstepError if the function cannot run without this process."""
    _check(function, arguments)
    collector = _Collector(function)
    collector.add(function.__name__, function)
    imports = "".join(sorted(collector.imports))
    call = f'if __name__ == "__main__":\n    {function.__name__}(**{dict(arguments)!r})\n'
    return "\n\n".join([_FUTURE + imports, *collector.sources, call])


def literal(value: object) -> str | None:
    """How a plain value (numbers, texts, None, lists, tuples, dicts, sets of them) is written in Python; None for others."""
    text = repr(value)
    try:
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _check(function: typing.Callable[..., object], arguments: typing.Mapping[str, object]) -> None:
    name = getattr(function, "__name__", repr(function))
    if inspect.ismethod(function):
        raise LockstepError(f"{name} is a method, whose object exists only here: submit a function, and let it make the object")
    if not inspect.isfunction(function):
        raise LockstepError(f"{function!r} is a {type(function).__name__}: submit a function that is defined with `def`, or the path of a script")
    if name == "<lambda>":
        raise LockstepError("a lambda has no name in the script: define a function with `def`")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise LockstepError(f"{name} is asynchronous or a generator: a call would not run it. Submit a function that calls it")
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise LockstepError(f"arguments of {name}: {error}") from None
    for key, value in arguments.items():
        if literal(value) is None:
            raise LockstepError(f"argument {key} of {name} is a {type(value).__name__}, which cannot be written into the script: pass numbers, texts, "
                                "lists or dicts, and make the object in the function")


class _Collector:
    """Follows the names that a function uses, to the functions and classes of its notebook or module."""

    def __init__(self, function: typing.Callable[..., object]) -> None:
        self.imports: set[str] = set()
        self.sources: list[str] = []  # what is used stands before what uses it
        self._seen: set[str] = set()
        self._globals: dict[str, typing.Any] = getattr(function, "__globals__")
        self._module = function.__module__

    def add(self, name: str, value: typing.Any) -> None:
        """A function or class of the notebook, after all that it uses."""
        self._seen.add(name)
        _reject_closure(value)
        text = _source_of(value)
        for used in sorted(_names_used(text)):
            self._add_used(used, name, text)
        self.sources.append(text)

    def _add_used(self, used: str, user: str, text: str) -> None:
        if used not in self._globals:
            if not hasattr(builtins, used):
                raise LockstepError(f"{user} uses {used}, which is not defined: in a pod it would fail with NameError")
            return
        value = self._globals[used]
        if isinstance(value, types.ModuleType):
            self.imports.update(_imports_of(value, used, text))
        elif used in self._seen or (used.startswith("__") and used.endswith("__")):
            return
        elif self._is_defined_here(used, value):
            self.add(used, value)
        elif _is_importable(value):
            self._seen.add(used)
            alias = "" if used == value.__name__ else f" as {used}"
            self.imports.add(f"from {value.__module__} import {value.__name__}{alias}\n")
        else:
            self._add_value(used, value, user)

    def _add_value(self, used: str, value: object, user: str) -> None:
        text = literal(value)
        if text is None:
            raise LockstepError(f"{user} uses {used}, a {type(value).__name__} that exists only here: make it in {user}, or pass what it is made of "
                                "by `arguments`")
        self._seen.add(used)
        self.sources.append(f"{used} = {text}\n")

    def _is_defined_here(self, used: str, value: object) -> bool:
        is_one = inspect.isclass(value) or inspect.isfunction(value)
        return is_one and getattr(value, "__module__", None) == self._module and getattr(value, "__name__", None) == used


def _reject_closure(value: typing.Any) -> None:
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    if code is None or not code.co_freevars:
        return
    names = ", ".join(code.co_freevars)
    raise LockstepError(f"{value.__name__} uses {names} of the function in which it is defined: pass it by `arguments`, or define it in {value.__name__}")


def _is_importable(value: object) -> bool:
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__name__", None)
    return module is not None and module.__name__ != "__main__" and isinstance(name, str) and getattr(module, name, None) is value


def _imports_of(module: types.ModuleType, name: str, text: str) -> set[str]:
    """Also of submodules that the source reaches through the module, as in `torch.utils.data`: they are imported here, but perhaps not there."""
    real = module.__name__
    found = {f"import {real}\n" if name == real else f"import {real} as {name}\n"}
    for node in ast.walk(ast.parse(text)):
        dotted = _dotted(node)
        if dotted is None or dotted[0] != name:
            continue
        submodule = real
        for part in dotted[1:]:
            if f"{submodule}.{part}" not in sys.modules:
                break
            submodule = f"{submodule}.{part}"
        if submodule != real:
            found.add(f"import {submodule}\n")
    return found


def _dotted(node: ast.AST) -> list[str] | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else None


def _source_of(value: typing.Any) -> str:
    try:
        text = _class_source(value) if inspect.isclass(value) else inspect.getsource(value)
    except (OSError, TypeError):
        raise LockstepError(f"the source of {value.__name__} cannot be found: define it in a cell or a file, or submit the path of a script") from None
    return textwrap.dedent(text)


def _class_source(value: type) -> str:
    """inspect.getsource finds no class of a notebook before Python 3.13; the code of its methods names the cell."""
    for member in vars(value).values():
        code = getattr(inspect.unwrap(member), "__code__", None) if inspect.isfunction(member) else None
        lines = linecache.getlines(code.co_filename) if code is not None else []
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == value.__name__ and code is not None and _spans(node, code.co_firstlineno):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return "".join(lines[first - 1:node.end_lineno])
    return inspect.getsource(value)


def _spans(node: ast.ClassDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _names_used(text: str) -> set[str]:
    """Names that the source takes from around it."""
    top = symtable.symtable(_FUTURE + text, "<source>", "exec")
    defined = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()}
    used: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        used.update(symbol.get_name() for symbol in table.get_symbols()
                    if symbol.is_referenced() and (symbol.is_global() or table is top) and not symbol.is_assigned())
    return used - defined
