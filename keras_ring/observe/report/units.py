"""Formats numbers with units."""

from __future__ import annotations

from collections.abc import Sequence

from keras_ring.observe.judge import percent
from keras_ring.observe.words import rank_runs

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def time(nanoseconds: float) -> str:
    """Returns a time as text, with three digits and a unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{_digits(nanoseconds / size)} {unit}"
    return f"{_digits(nanoseconds / 1e3)} us"


def num_bytes(number: float) -> str:
    """Returns a number of bytes as text, with a unit."""
    units = iter(_BYTES)
    unit = next(units)
    while number >= 1024 and unit != _BYTES[-1]:
        number, unit = number / 1024, next(units)
    return f"{_digits(number)} {unit}"


def rate(bytes_per_second: float) -> str:
    """Returns a bandwidth as text, with a unit."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_second >= size / 10:
            return f"{_digits(bytes_per_second / size)} {unit}"
    return f"{_digits(bytes_per_second / 1e3)} kB/s"


def share(part: float) -> str:
    """Returns a share as text, in percent."""
    return percent(part)


def _digits(number: float) -> str:
    if number >= 100 or number == int(number):
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2g}"


def ranks(numbers: Sequence[int]) -> str:
    """Returns ranks as text: "rank 3", or "ranks 0-3, 7" and how many more."""
    runs = rank_runs(numbers)
    texts = [f"{a}-{b}" if b > a else str(a) for a, b in runs]
    more = len(texts) - 8
    if more > 0:
        texts[8:] = [f"and {more} more"]
    return ("ranks " if len(numbers) > 1 else "rank ") + ", ".join(texts)
