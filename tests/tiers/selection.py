"""Which Python tests the gate runs, and which C++ tests it sanitizes."""

from collections.abc import Iterable

from tests.tiers import durations, reach
from tests.tiers.draw import Drawn, draw

# Seconds of tests, of two workers or two cores together.
PYTHON_BUDGET = 1000.0
KERAS2_BUDGET = 200.0
SANITIZER_BUDGET = 240.0
# Of Keras 2, what has a lane of its own.
_KERAS2 = "keras2"


def _files(keras2: bool) -> list[str]:
    paths = (
        path.relative_to(reach.TESTS).as_posix()
        for path in reach.TESTS.rglob("test_*.py")
    )
    return [path for path in paths if path.startswith(_KERAS2) is keras2]


def python_files(
    paths: Iterable[str] | None, seed: int, *, keras2: bool = False
) -> Drawn:
    """Draws files of Python tests.

    Args:
        paths: What has changed; None if it cannot be told.
        seed: Of the draw.
        keras2: Whether it is for the lane of TensorFlow 2.15.
    """
    changed = None if paths is None else sorted(paths)
    files = _files(keras2)
    must = {file for file in files if f"tests/{file}" in (changed or ())}
    must |= {file for file in files if file.startswith(reach.ALWAYS)}
    return draw(
        files,
        lambda file: reach.of_file(file, changed),
        durations.read("keras2" if keras2 else "files"),
        KERAS2_BUDGET if keras2 else PYTHON_BUDGET,
        seed,
        must,
    )


def cpp_tests(paths: Iterable[str] | None, seed: int, flavour: str) -> Drawn:
    """Draws C++ tests for a sanitizer. Those that are new always run.

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
    )
