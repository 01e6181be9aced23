"""Pickles functions for other processes, with their file names and sources.

Functions that a script or a notebook defines are pickled by value: their code
is sent to the ranks, but not its text. cloudpickle also leaves out the name of
the file. But AutoGraph reads the source of a function to convert its loops and
conditions, and so do `inspect` and tracebacks. All of them use `linecache`, so
the texts are put there.
"""

from __future__ import annotations

import collections
import importlib
import io
import linecache
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar


@dataclass(frozen=True)
class Pickled:
    """A value that is sent to other processes.

    Args:
        sources: Dictionary of the texts of the files from which its code was
            compiled, by file name.
        data: Bytes, the pickle of the value.
        buffers: Sequence of buffers that are not in `data`.
    """

    sources: Mapping[str, str]
    data: bytes
    buffers: Sequence[Any] = ()

    def load(self) -> Any:
        """Puts the sources into `linecache`, and returns the value.

        The sources replace files of the same names on this host, which may be
        different.
        """
        for name, text in self.sources.items():
            lines = text.splitlines(keepends=True)
            # Without a time, `linecache` does not check the file for changes.
            linecache.cache[name] = (len(text), None, lines, name)
        return pickle.loads(self.data, buffers=self.buffers)

    def encode(self) -> bytes:
        """Returns this object as bytes, for `decode`."""
        return pickle.dumps(self)


def decode(data: bytes) -> Pickled:
    """Returns the `Pickled` object of bytes that `encode` has returned.

    Args:
        data: Bytes from a private file, because their author can run any code.
    """
    pickled: Pickled = pickle.loads(data)
    return pickled


def dumps(
    value: object,
    base: Any = None,
    *,
    apart: bool = False,
    with_sources: bool = True,
) -> Pickled:
    """Pickles a value as cloudpickle does, and collects its sources.

    Args:
        value: A function, or an object that may contain functions.
        base: Class of the pickler. Defaults to that of cloudpickle.
        apart: Boolean, whether large arrays are put into separate buffers.
            Defaults to `False`.
        with_sources: Boolean, whether to add the sources. Not needed if the
            receiver has them. Defaults to `True`.

    Returns:
        A `Pickled`.
    """
    if base is None:
        base = importlib.import_module("cloudpickle").CloudPickler
    names: set[str] = set()
    reduce_code = base.dispatch_table[CodeType]

    def reduce(code: CodeType) -> tuple[Any, ...]:
        names.add(code.co_filename)
        return _restored, (reduce_code(code)[1], code.co_filename)

    class Pickler(base):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = collections.ChainMap(
            {CodeType: reduce}, base.dispatch_table
        )

    buffers: list[Any] = []
    with io.BytesIO() as file:
        Pickler(
            file,
            protocol=pickle.HIGHEST_PROTOCOL,
            buffer_callback=buffers.append if apart else None,
        ).dump(value)
        data = file.getvalue()
    return Pickled(_sources(names) if with_sources else {}, data, buffers)


def _sources(names: set[str]) -> dict[str, str]:
    found = {name: "".join(linecache.getlines(name)) for name in sorted(names)}
    return {name: text for name, text in found.items() if text}


def _restored(arguments: tuple[Any, ...], name: str) -> CodeType:
    """Returns the code object that `dumps` has pickled, with its file name."""
    return CodeType(*arguments).replace(co_filename=name)
