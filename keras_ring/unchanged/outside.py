"""Detects callbacks that reach outside of the program.

A callback that all ranks run does the same on each rank as in one process,
because the model and the results that it gets are the same. But its effects
outside of the program are multiplied by the number of ranks: rows in a
database, requests to a server, lines in a file. Such callbacks are detected by
their code, that is, by the modules and functions that it uses, also indirectly
through other code of the program.

A callback that is not detected runs on each rank, as it would without this
module. A callback that is detected by mistake runs on rank 0, and the others
receive its changes (`callbacks_outside`), which gives the same training.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_ring._typing import Callback
from keras_ring.keras.backends import tf_data
from keras_ring.keras.lanes import keras
from keras_ring.unchanged import script

# Modules of Python's standard library that reach outside.
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
# Packages that compute and reach nothing outside by themselves.
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
# Methods that write, of objects that their modules do not tell.
_WRITES = frozenset(
    {
        "imsave",
        "imwrite",
        "mimsave",
        "mimwrite",
        "open",
        # Saves images, arrays and checkpoints; for models, see `_names_in`.
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
# Changes of the training that cannot be sent to other ranks.
_KEEPS_TO_ITSELF = frozenset({"compile", "make_train_function", "trainable"})
# Methods that change weights, so that weights are compared after batches, too.
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
_DEEP = 4  # nested calls within the program that are examined


class Reach(NamedTuple):
    """The effects of a callback, as its code tells them.

    Args:
        outside: Tuple of strings, sorted, the modules and functions that reach
            outside of the program.
        keeps: Boolean, whether it makes changes that cannot be sent to other
            ranks, or communicates with other ranks itself, or may read data
            whose order depends on how often they were read.
        changes_weights: Boolean, whether it may change weights.
    """

    outside: tuple[str, ...]
    keeps: bool
    changes_weights: bool


def reach(callback: Callback) -> Reach:
    """Examines the code of a callback.

    Args:
        callback: A `keras.callbacks.Callback`.

    Returns:
        A `Reach`.
    """
    seen = _Seen()
    for kind in type(callback).__mro__:
        if _top(kind) in _COMPUTES or kind is object:
            break
        if _is_of_others(kind):
            seen.outside.add(_top(kind))
        for member in vars(kind).values():
            seen.look_at(member)
    # Attributes, such as functions that it was given, connections and runs.
    for value in vars(callback).values():
        seen.look_at(value)
        seen.look_at_object(value)
    return Reach(
        tuple(sorted(seen.outside)),
        bool(seen.names & _KEEPS_TO_ITSELF)
        or seen.works_with_ranks
        or seen.has_reshuffled_data,
        bool(seen.names & _CHANGES),
    )


class _Seen:
    """The modules and names that were found in a callback's code so far."""

    def __init__(self) -> None:
        self.outside: set[str] = set()
        self.names: set[str] = set()
        self.works_with_ranks = False
        self.has_reshuffled_data = False
        self._done: set[int] = set()

    def look_at(self, value: Any, depth: int = 0) -> None:
        """Examines a value that some code uses, such as a function.

        Args:
            value: Any object.
            depth: Integer, the number of calls within the program so far.
        """
        if isinstance(value, property):
            for each in (value.fget, value.fset):
                self.look_at(each, depth)
            return
        if isinstance(value, _METHODS):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            value = inspect.unwrap(value)
        if tf_data.is_dataset(value) and tf_data.reshuffles(value):
            self.has_reshuffled_data = True
        top = _top(value)
        if top == "keras_ring":
            self.works_with_ranks = True
        elif top in _MODULES or _is_of_others(value):
            self.outside.add(top)
        elif isinstance(value, types.FunctionType):
            self._look_into(value, depth)

    def look_at_object(self, value: Any, depth: int = 0) -> None:
        """Examines the methods that are called of an object of the program.

        Args:
            value: Any object. Objects of other classes are ignored.
            depth: Integer, the number of calls within the program so far.
        """
        kinds = [each for each in type(value).__mro__ if each is not object]
        if (
            id(value) in self._done
            or depth > _DEEP
            or not all(map(_is_class_of_program, kinds))
        ):
            return
        self._done.add(id(value))
        before: set[str] | None = None
        # A method that is called may call further methods.
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
    """Returns the names that code uses, without the `save` of `model.save`.

    A model is written once, on whichever ranks `model.save` is called.
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
    """Returns the top-level package of an object, or else of its class."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = getattr(value, "__module__", None) or type(value).__module__
    return str(name).split(".")[0]


def _is_of_keras(value: Any) -> bool:
    return _top(value) in ("keras", "tf_keras", "tensorflow")


def _is_of_others(value: Any) -> bool:
    """Returns whether an object is of a third-party package.

    Packages in `_COMPUTES` and of the standard library are not.
    """
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
    """Returns whether a callback contains code that is not Keras'.

    A `LambdaCallback` does, because it is given functions.
    """
    kind = type(callback)
    if kind is keras.callbacks.LambdaCallback:
        return True
    return _top(kind) not in ("keras", "tf_keras", "keras_ring")
