"""The first difference of two values, of two files and of two folders."""

import contextlib
import io
import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

# Times, hosts and process ids are in these names, and differ in each run.
_EVENTS = re.compile(r"events\.out\.tfevents\.[^/]*")
# An address in the memory of the process that saved.
_OBJECT = re.compile(rb', "shared_object_id": \d+')
_NUMBER = re.compile(
    r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
)


def largest(arrays: Iterable[Any]) -> float:
    """The largest finite number in arrays, without its sign."""
    numbers = (np.abs(a[np.isfinite(a)]) for a in map(_as_numbers, arrays))
    return max((float(n.max()) for n in numbers if n.size), default=0.0)


def _as_numbers(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(float) if array.dtype.kind in "fiub" else np.zeros(0)


def relative(one: Any, other: Any, scale: float = 0.0) -> float:
    """The largest difference of two arrays, in terms of their scale.

    Args:
        one: The array that is right.
        other: Another one.
        scale: What the difference is divided by, unless a number of the array
            is larger. What a softmax or a normalization cancels has gradients
            of rounding alone, and has no digit that counts.
    """
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return np.inf
    if one.dtype.kind not in "fiub" or other.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(one, other) else np.inf
    one, other = one.astype(np.float64), other.astype(np.float64)
    unequal = (one != other) & ~(np.isnan(one) & np.isnan(other))
    if not unequal.any():
        return 0.0
    if not np.isfinite(one[unequal]).all():
        return np.inf
    if not np.isfinite(other[unequal]).all():
        return np.inf
    scale = max(scale, largest([one]), 1e-300)
    return float(np.abs(one - other)[unequal].max() / scale)


def of_values(
    one: Any, other: Any, bound: float, where: str = "", scale: float = 0.0
) -> str:
    """Returns what differs first between nested values, or ''."""
    if isinstance(one, dict) or isinstance(other, dict):
        if not isinstance(one, dict) or not isinstance(other, dict):
            return f"{where}: {_short(one)}, not {_short(other)}"
        if list(one) != list(other):
            return f"{where}: keys {list(one)}, not {list(other)}"
        pairs = [(f"{where}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{where}: {len(one)} items, not {len(other)}"
        # Numbers one after the other, as in a history, are one array.
        if one and all(_is_number(item) for item in (*one, *other)):
            one, other = np.asarray(one), np.asarray(other)
            return of_values(one, other, bound, where, scale)
        pairs = [
            (f"{where}[{index}]", *pair)
            for index, pair in enumerate(zip(one, other, strict=True))
        ]
    elif isinstance(one, (str, type(None))) or isinstance(
        other, (str, type(None))
    ):
        same = type(one) is type(other) and one == other
        return "" if same else f"{where}: {_short(one)}, not {_short(other)}"
    else:
        shapes = np.shape(one), np.shape(other)
        if shapes[0] != shapes[1]:
            return f"{where}: shape {shapes[0]}, not {shapes[1]}"
        apart = relative(one, other, scale)
        if apart <= bound:
            return ""
        return (
            f"{where}: {apart:.1e} apart ({_short(one)}, not {_short(other)})"
        )
    for place, first, second in pairs:
        if found := of_values(first, second, bound, place, scale):
            return found
    return ""


def of_texts(one: str, other: str, bound: float, where: str) -> str:
    """As `of_values`, of lines; the numbers in them may differ a little."""
    lines, others = one.splitlines(), other.splitlines()
    for index, pair in enumerate(zip(lines, others, strict=False), 1):
        if not same_line(*pair, bound):
            return (
                f"{where}, line {index}: {_short(pair[0])},"
                f" not {_short(pair[1])}"
            )
    if len(lines) != len(others):
        return f"{where}: {len(lines)} lines, not {len(others)}"
    return ""


def same_line(one: str, other: str, bound: float) -> bool:
    if one == other:
        return True
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(_same_number(*pair, bound) for pair in pairs)


def _same_number(one: str, other: str, bound: float) -> bool:
    a, b = float(one), float(other)
    if one == other or a == b or (a != a and b != b):
        return True
    # What was rounded may differ in the last digit that is shown.
    last = max(_last_digit(one), _last_digit(other))
    return abs(a - b) <= max(bound * max(abs(a), abs(b)), 1.001 * last)


def _last_digit(number: str) -> float:
    """The value of its last digit; 0 for whole numbers, which are counts."""
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits else 0.0


def of_files(one: Path, other: Path, bound: float, where: str) -> str:
    """As `of_values`, of the contents of two files of the same name."""
    return of_contents(one.read_bytes(), other.read_bytes(), bound, where)


def of_contents(one: bytes, other: bytes, bound: float, where: str) -> str:
    if one == other or _EVENTS.search(where):
        return ""
    suffix = where.rpartition(".")[2]
    if suffix == "h5":
        arrays = _h5(one), _h5(other)
        scale = largest(arrays[0].values())
        return of_values(*arrays, bound, where, scale)
    if suffix in ("keras", "npz", "zip"):
        return _of_archives(one, other, bound, where)
    if suffix == "npy":
        arrays = (np.load(io.BytesIO(content)) for content in (one, other))
        return of_values(*arrays, bound, where)
    if suffix == "json":
        with contextlib.suppress(ValueError):  # one object on each line
            values = json.loads(one), json.loads(other)
            return of_values(*values, bound, where)
    try:
        texts = one.decode(), other.decode()
    except UnicodeDecodeError:
        return f"{where}: {len(one)} bytes, not these {len(other)}"
    return of_texts(*texts, bound, where)


def _h5(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(io.BytesIO(content), "r") as file:

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item[()]

        file.visititems(visit)
    return found


def _of_archives(one: bytes, other: bytes, bound: float, where: str) -> str:
    with (
        zipfile.ZipFile(io.BytesIO(one)) as first,
        zipfile.ZipFile(io.BytesIO(other)) as second,
    ):
        names = sorted(first.namelist()), sorted(second.namelist())
        if names[0] != names[1]:
            return f"{where}: members {names[0]}, not {names[1]}"
        for name in names[0]:
            contents = [archive.read(name) for archive in (first, second)]
            if name == "metadata.json":
                contents = [_undated(content) for content in contents]
            elif name == "config.json":
                contents = [_OBJECT.sub(b"", content) for content in contents]
            place = f"{where}/{name}"
            if found := of_contents(*contents, bound, place):
                return found
    return ""


def _undated(metadata: bytes) -> bytes:
    fields = json.loads(metadata)
    fields.pop("date_saved", None)
    return json.dumps(fields).encode()


def listing(folder: Path) -> dict[str, list[Path]]:
    """Files below a folder, by names without what differs in each run."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            found.setdefault(_EVENTS.sub("events.out.tfevents.*", name), [])
            found[_EVENTS.sub("events.out.tfevents.*", name)].append(path)
    return found


def of_folders(
    one: Path, other: Path, bound: float, contents: bool = True
) -> str:
    """As `of_values`, of all the files below two folders."""
    files, others = listing(one), listing(other)
    if missing := sorted(files.keys() - others.keys()):
        return f"no file {missing[0]}"
    if added := sorted(others.keys() - files.keys()):
        return f"a file too many: {added[0]}"
    for name, paths in files.items():
        if len(paths) != len(others[name]):
            return f"{len(others[name])} files {name}, not {len(paths)}"
        if "tfevents" in name or not contents:
            continue
        if found := of_files(paths[0], others[name][0], bound, name):
            return found
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any, width: int = 60) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= width else text[: width - 3] + "..."
