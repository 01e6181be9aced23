"""Tells whether a callback reaches outside of the program.

A callback that all ranks run does on each what it does in one process: what it
is shown, and the model, are the same. What it does outside is then done as many
times as there are ranks: rows in a database, requests to a server, lines in a
file. Its code tells of that: the modules and functions which it, and what it
calls in the program, go by.

What is overlooked so is done on each rank, as without this. What is taken for
such a callback and is none runs on rank 0, and the others follow
(`callbacks_outside`), which trains the same.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_ring._auto import script
from keras_ring._keras import keras
from keras_ring._typing import Callback

# Of Python's own library.
_MODULES = frozenset(
    {
        "asyncio",
        "dbm",
        "ftplib",
        "http",
        "imaplib",
        "shelve",
        "smtplib",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "urllib",
        "webbrowser",
        "xmlrpc",
    }
)
# What others have made that computes, and reaches nothing by itself.
_COMPUTES = frozenset(
    {
        "absl",
        "h5py",
        "jax",
        "keras",
        "keras_ring",
        "ml_dtypes",
        "numpy",
        "pandas",
        "scipy",
        "sklearn",
        "tensorflow",
        "tf_keras",
        "torch",
    }
)
# Methods of what cannot be told by its module.
_WRITES = frozenset(
    {
        "imsave",
        "imwrite",
        "mimsave",
        "mimwrite",
        "open",
        # Of pictures, arrays and checkpoints; of a model, see `_names_in`.
        "save",
        "save_img",
        "savefig",
        "savetxt",
        "savez",
        "savez_compressed",
        "to_csv",
        "to_excel",
        "to_hdf",
        "to_json",
        "to_parquet",
        "to_pickle",
        "to_sql",
        "tofile",
        "write_bytes",
        "write_file",
        "write_text",
    }
)
# What of the training another rank cannot be given.
_KEEPS_TO_ITSELF = frozenset({"compile", "make_train_function", "trainable"})
# What changes weights, which is looked for after batches as well.
_CHANGES = frozenset(
    {
        "assign",
        "assign_add",
        "assign_sub",
        "load_weights",
        "set_value",
        "set_weights",
    }
)
_METHODS = (staticmethod, classmethod, types.MethodType)
_OF_MODEL = ("model", "_model")
_DEEP = 4  # calls within the program


class Reach(NamedTuple):
    """What the code of a callback goes by.

    Args:
        outside: Strings, sorted, what reaches outside of the program.
        keeps: Boolean, whether it changes what other ranks cannot be given, or
            works with other ranks itself.
        changes_weights: Boolean, whether it may do so.
    """

    outside: tuple[str, ...]
    keeps: bool
    changes_weights: bool


def reach(callback: Callback) -> Reach:
    """Looks into a callback.

    Args:
        callback: A `keras.callbacks.Callback`.
    """
    seen = _Seen()
    for kind in type(callback).__mro__:
        if _top(kind) in _COMPUTES or kind is object:
            break
        if _is_of_others(kind):
            seen.outside.add(_top(kind))
        for member in vars(kind).values():
            seen.look_at(member)
    # Functions that it was given, connections, runs.
    for value in vars(callback).values():
        seen.look_at(value)
        seen.look_at_object(value)
    return Reach(
        tuple(sorted(seen.outside)),
        bool(seen.names & _KEEPS_TO_ITSELF) or seen.works_with_ranks,
        bool(seen.names & _CHANGES),
    )


class _Seen:
    """What was found so far."""

    def __init__(self) -> None:
        self.outside: set[str] = set()
        self.names: set[str] = set()
        self.works_with_ranks = False
        self._done: set[int] = set()

    def look_at(self, value: Any, depth: int = 0) -> None:
        """Looks at what some code goes by."""
        if isinstance(value, property):
            for each in (value.fget, value.fset):
                self.look_at(each, depth)
            return
        if isinstance(value, _METHODS):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            value = inspect.unwrap(value)
        top = _top(value)
        if top == "keras_ring":
            self.works_with_ranks = True
        elif top in _MODULES or _is_of_others(value):
            self.outside.add(top)
        elif isinstance(value, types.FunctionType):
            self._look_into(value, depth)

    def look_at_object(self, value: Any, depth: int = 0) -> None:
        """Looks at what is called of an object of the program's own."""
        kinds = [each for each in type(value).__mro__ if each is not object]
        if (
            id(value) in self._done
            or depth > _DEEP
            or not all(map(_is_class_of_program, kinds))
        ):
            return
        self._done.add(id(value))
        before: set[str] | None = None
        # What is called may call more of it.
        while before != self.names:
            before = set(self.names)
            for kind in kinds:
                for name in before & vars(kind).keys():
                    self.look_at(vars(kind)[name], depth + 1)
        for each in getattr(value, "__dict__", {}).values():
            self.look_at(each, depth + 1)
            self.look_at_object(each, depth + 1)

    def _look_into(self, function: types.FunctionType, depth: int) -> None:
        if id(function) in self._done or depth > _DEEP:
            return
        self._done.add(id(function))
        if _is_of_keras(function) or not script.is_file_of_program(
            function.__code__.co_filename
        ):
            return
        names: set[str] = set()
        for code in _codes(function.__code__):
            names |= _names_in(code)
            for each in dis.get_instructions(code):
                if each.opname == "IMPORT_NAME":
                    self._look_at_import(str(each.argval))
        self.names |= names
        self.outside |= names & _WRITES
        for cell in function.__closure__ or ():
            try:
                self.look_at(cell.cell_contents, depth + 1)
            except ValueError:
                continue
        for name in names & function.__globals__.keys():
            self.look_at(function.__globals__[name], depth + 1)

    def _look_at_import(self, name: str) -> None:
        top = name.split(".")[0]
        if top == "keras_ring":
            self.works_with_ranks = True
        elif top in _MODULES or (
            top in sys.modules and _is_of_others(sys.modules[top])
        ):
            self.outside.add(top)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _names_in(code: types.CodeType) -> set[str]:
    """Returns the names that code goes by, without `model.save`.

    What saves a model has it written once, on whichever ranks it is called.
    """
    names = set(code.co_names)
    owners = [
        before.argval
        for before, each in itertools.pairwise(dis.get_instructions(code))
        if each.argval == "save"
    ]
    if owners and all(owner in _OF_MODEL for owner in owners):
        names.discard("save")
    return names


def _top(value: Any) -> str:
    """Returns the package that something, or else its class, is of."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = getattr(value, "__module__", None) or type(value).__module__
    return str(name).split(".")[0]


def _is_of_keras(value: Any) -> bool:
    return _top(value) in ("keras", "tf_keras", "tensorflow")


def _is_of_others(value: Any) -> bool:
    """Whether something is of a package that is neither ours nor Python's."""
    top = _top(value)
    if top in _COMPUTES or top in sys.stdlib_module_names or top == "builtins":
        return False
    module = sys.modules.get(top)
    path = getattr(module, "__file__", None)
    return path is not None and not script.is_file_of_program(path)


def _is_class_of_program(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    path = getattr(module, "__file__", None)
    return path is not None and script.is_file_of_program(path)


def is_of_program_or_others(callback: Callback) -> bool:
    """Whether a callback is, or is given something that is, not of Keras."""
    kind = type(callback)
    if kind is keras.callbacks.LambdaCallback:
        return True
    return _top(kind) not in ("keras", "tf_keras", "keras_ring")
