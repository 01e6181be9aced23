"""Which Python tests the gate runs, and which C++ tests it sanitizes."""

import random
import re
from collections.abc import Iterable
from pathlib import PurePath

from tests.tiers import durations, reach
from tests.tiers.draw import Drawn, draw
from tests.tiers.environments import ENVIRONMENTS

# Seconds of tests, of two workers or two cores together.
PYTHON_BUDGET = 1000.0
SANITIZER_BUDGET = 240.0
# How CMake ends the name of a C++ test that runs in parts.
_PART = re.compile(r"_\d+_of_\d+$")


def _files(folder: str | None) -> list[str]:
    paths = (
        path.relative_to(reach.TESTS).as_posix()
        for path in reach.TESTS.rglob("test_*.py")
    )
    return [path for path in paths if _environment_of(path) == folder]


def _environment_of(path: str) -> str | None:
    folder = path.partition("/")[0]
    return folder if folder in ENVIRONMENTS else None


def python_files(
    paths: Iterable[str] | None, seed: int, folder: str | None = None
) -> Drawn:
    """Draws files of Python tests.

    Args:
        paths: What has changed; None if it cannot be told.
        seed: Of the draw.
        folder: That of an environment of its own; None for all other files.
    """
    changed = None if paths is None else sorted(paths)
    files = _files(folder)
    must = {file for file in files if f"tests/{file}" in (changed or ())}
    must |= {file for file in files if file.startswith(reach.ALWAYS)}
    return draw(
        files,
        lambda file: reach.of_file(file, changed),
        durations.read(folder or "files"),
        ENVIRONMENTS[folder].budget if folder else PYTHON_BUDGET,
        seed,
        must,
    )


def cpp_tests(paths: Iterable[str] | None, seed: int, flavour: str) -> Drawn:
    """Draws C++ tests for a sanitizer. Those that are new or changed run.

    The lane without sanitizers has another compiler, so that a changed test
    is compiled here or nowhere. Of one that runs in parts, one part runs.

    Args:
        paths: What has changed; None if it cannot be told.
        seed: Of the draw.
        flavour: `asan` or `tsan`.
    """
    changed = None if paths is None else sorted(paths)
    known = durations.read(flavour)
    return draw(
        known,
        lambda name: reach.of_cpp_test(name, changed),
        known,
        SANITIZER_BUDGET,
        seed,
        _changed_cpp_tests(known, changed or (), seed),
    )


def _changed_cpp_tests(
    names: Iterable[str], paths: Iterable[str], seed: int
) -> set[str]:
    parts: dict[str, list[str]] = {}
    for name in sorted(names):
        parts.setdefault(_PART.sub("", name), []).append(name)
    changed = {
        PurePath(path).stem
        for path in paths
        if path.startswith("tests/cpp/") and path.endswith(".cc")
    }
    generator = random.Random(seed)
    return {
        generator.choice(of_file)
        for file, of_file in parts.items()
        if file in changed
    }
