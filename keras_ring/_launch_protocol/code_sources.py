"""Functions that go to other processes, with their names of files and sources.

What a script or a notebook defines is pickled by value: its code goes to the
ranks, and not the text of it. cloudpickle leaves the file's name out as well.
But AutoGraph reads the source of a function, to convert its loops and
conditions, and so do `inspect` and tracebacks. All of them look into
`linecache`, so the texts are put there.
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
    """A value on its way to other processes.

    Args:
        sources: Text of each file that code of it was compiled from.
        data: The value as pickled.
        buffers: Those that were left out of `data`.
    """

    sources: Mapping[str, str]
    data: bytes
    buffers: Sequence[Any] = ()

    def load(self) -> Any:
        """Returns the value, whose sources are known from then on.

        They count more than files of their names here, which may be others.
        """
        for name, text in self.sources.items():
            lines = text.splitlines(keepends=True)
            # Without a time, `linecache` does not look whether a file changed.
            linecache.cache[name] = (len(text), None, lines, name)
        return pickle.loads(self.data, buffers=self.buffers)

    def encode(self) -> bytes:
        """Returns all of it as bytes, for `decode`."""
        return pickle.dumps(self)


def decode(data: bytes) -> Pickled:
    """Returns what `encode` has made bytes of.

    Args:
        data: From a private file, for whoever wrote it decides what is run.
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
    """Pickles a value as cloudpickle does, and collects the sources of it.

    Args:
        value: A function, or anything that contains some.
        base: The class of the pickler. Defaults to that of cloudpickle.
        apart: Boolean, whether large arrays are left out of the data, in
            buffers.
        with_sources: Boolean, whether the receiver does not have them.
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
    """Makes code as it was, of what `dumps` has written."""
    return CodeType(*arguments).replace(co_filename=name)
