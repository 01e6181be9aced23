"""Which tests a change can touch, by the floors of the code.

Tests belong to a group, their folder; a group tests some rooms, and stands on
all rooms that these may import (`tests/lint/floors.py`). So a changed path is
for a group one of three:

- OWN: it is in a room that the group tests, or one of its own files.
- BELOW: it is in a room on which these stand, which other groups test.
- APART: nothing that the group runs can depend on it.

What cannot be told (a path of no room, no git) is OWN for all.
"""

import enum
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.lint import floors

TESTS = Path(__file__).resolve().parents[1]


class Reach(enum.IntEnum):
    """How close a change is to a test."""

    APART = 0
    BELOW = 1
    OWN = 2


# What every job of ranks runs, beside the rooms of keras_ring that its group
# tests. Folders of csrc stand for all that begins with them.
_JOB = (
    "csrc",
    "tf_ops",
    "xla_ops",
    "job",
    "launch",
    "launch/elastic",
    "launch/cli",
    "core/engines",
)
_KERAS = (
    *(room for room in floors.PYTHON_FLOORS if room.startswith("keras/")),
    *("callbacks", "checkpoint", "data", "schedules", "_former_paths"),
)
# Group of tests -> the rooms that it tests.
ROOMS: dict[str, tuple[str, ...]] = {
    "auto": ("unchanged", "auto", "keras/inference", "keras/fit"),
    "benchmarks": ("bench", "benchmarks"),
    "engines": (
        *("core/engines", "launch/ray", "ray", "deploy", "csrc/collective/mpi"),
        "csrc/comm/transport/mpi_",
    ),
    "gpu": (
        *("csrc/cuda", "csrc/device", "csrc/collective/cuda", "csrc/testing"),
        *("csrc/capi", "tf_ops"),
    ),
    "harness": ("launch", "launch/elastic", "protocol"),
    "hosts": ("csrc/comm", "csrc/collective", "launch", "protocol"),
    "keras": _KERAS,
    "keras2": (*_KERAS, "tensorflow", "tf_ops", "csrc/capi", "unchanged"),
    "launcher": (
        *("launch", "launch/elastic", "launch/cli", "protocol", "observe"),
        "observe/timeline",
        *("observe/report", "core/engines", "job"),
    ),
    "model": ("launch/elastic",),
    "multiprocess": (
        *(
            "csrc",
            "tf_ops",
            "xla_ops",
            "core",
            "tensorflow",
            "keras/agreement",
            "job",
            "launch/elastic",
        ),
    ),
    "pytorch": (*_KERAS, "torch", "core", "csrc/capi"),
    "with_jax": (*_KERAS, "jax", "xla_ops", "core", "csrc/capi"),
    "with_mxnet": ("mxnet", "core"),
}
# A room, and one that it imports in jobs of another kind alone.
_RARELY = {
    ("job", "auto"),
    ("launch/cli", "bench"),
    ("launch/cli", "observe/report"),
}
# Groups that have no ranks, take seconds, and run whatever has changed.
ALWAYS = ("lint", "tiers", "unit")
# Paths that are files of no room, and what they are part of: a group, rooms, or
# nothing that tests with ranks could see.
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "docs/": (),
    "mkdocs.yml": (),
    "README.md": (),
    "CHANGELOG.md": (),
    "CITATION.cff": (),
    "CONTRIBUTING.md": (),
    "LICENSE": (),
    "SECURITY.md": (),
    "MANIFEST.in": (),
    "BUILD": (),
    "WORKSPACE": (),
    ".bazel": (),
    ".ci/": (),
    ".clang-format": (),
    ".gitignore": (),
    ".pre-commit-config.yaml": (),
    "Makefile": (),
    "requirements-docs.txt": (),
    "requirements-engines.txt": ("tests/engines",),
    "requirements-tf215.txt": ("tests/keras2",),
    "requirements-torch.txt": ("tests/pytorch",),
    "requirements-jax.txt": ("tests/with_jax",),
    "requirements-mxnet.txt": ("tests/with_mxnet",),
    "examples/": (),
    "deploy/": ("deploy",),
    "benchmarks/": ("benchmarks",),
    "tools/": (),
    "tools/build_core.sh": ("csrc/capi",),
    "tools/cmake/": ("csrc/capi",),
    "tools/tf215.cfg": ("tests/keras2",),
    "tools/torch.cfg": ("tests/pytorch",),
    "tools/jax.cfg": ("tests/with_jax",),
    "csrc/CMakeLists.txt": ("csrc/capi",),
    "CMakeLists.txt": ("csrc/capi",),
    "setup.py": ("csrc/capi",),
    "tests/backends/": ("tests/pytorch", "tests/with_jax"),
    "tests/cpp/": (),
    "tests/fuzz/": (),
    "tests/fake_gpu/": ("tests/gpu", "tests/keras2"),
    "tests/lab/": ("tests/hosts", "tests/engines"),
    # What all tests with ranks stand on, and what decides which of them run: a
    # few of each kind show whether these still work.
    "tests/harness/": ("tests/harness", "protocol"),
    "tests/conftest.py": ("protocol",),
    "tests/tiers/": ("protocol",),
    "tests/documented.py": ("protocol",),
}


def _rooms(path: str) -> tuple[str, ...] | None:
    """Returns the rooms that a path is part of, or None if nobody knows."""
    beginnings = [start for start in _ELSEWHERE if path.startswith(start)]
    if beginnings:
        return _ELSEWHERE[max(beginnings, key=len)]
    top, _, rest = path.partition("/")
    if top in ("csrc", "tf_ops", "xla_ops") and rest:
        return (path,)
    if top == "keras_ring" and rest:
        room = floors.room_of(rest)
        known = (*floors.PYTHON_FLOORS, "py", "__init__", "__main__")
        if room in (*known, "errors", "_typing", "_version"):
            return (room,)
    if top == "tests" and (group := rest.partition("/")[0]) in (
        *ROOMS,
        *ALWAYS,
    ):
        return (f"tests/{group}",)
    return None


@cache
def _below(group: str) -> frozenset[str]:
    """Returns the rooms on which those that a group tests stand."""
    found: set[str] = set()
    new = {*ROOMS[group], *_JOB} if group != "model" else set()
    while new:
        found |= new
        new = {
            beneath
            for room in new
            for beneath in floors.PYTHON_FLOORS.get(room, ())
            if (room, beneath) not in _RARELY
        } - found
    return frozenset(found | {"errors", "_typing", "_version", "__init__"})


def _within(room: str, rooms: Iterable[str]) -> bool:
    return any(
        room == each
        or (
            each.startswith(("csrc", "tf_ops", "xla_ops"))
            and room.startswith(each)
        )
        for each in rooms
    )


def of_group(group: str, paths: Iterable[str] | None) -> Reach:
    """Returns how close changed paths are to a group of tests."""
    if group in ALWAYS or paths is None:
        return Reach.OWN
    reach = Reach.APART
    for path in paths:
        rooms = _rooms(path)
        if rooms is None or f"tests/{group}" in rooms:
            return Reach.OWN
        for room in rooms:
            if _within(room, ROOMS[group]):
                return Reach.OWN
            if _within(room, _below(group)):
                reach = Reach.BELOW
    return reach


# Pages and programs outside of the package are read and run by tests that name
# them.
_NAMED = ("docs/", "examples/", "deploy/", "tools/", "README.md")
_NAMED_LIKE = re.compile(r"[\w./-]+")


def of_file(file: str, paths: Iterable[str] | None) -> Reach:
    """Returns how close changed paths are to a file of tests.

    Args:
        file: A path within `tests`.
        paths: Paths within the checkout; None if it cannot be told.
    """
    group = file.partition("/")[0]
    reach = of_group(group, paths)
    if reach is Reach.OWN or paths is None:
        return Reach.OWN
    named = [path for path in paths if path.startswith(_NAMED)]
    if named:
        words = set(_NAMED_LIKE.findall((TESTS / file).read_text()))
        words |= {word.rpartition("/")[2] for word in words}
        if any(Path(path).name in words for path in named):
            return Reach.OWN
    return reach


# Lane of the gate that has no groups -> beginnings of the paths that it tests.
LANES: dict[str, tuple[str, ...]] = {
    "cpp": (
        *("csrc/", "tests/cpp/", "tests/fuzz/", "CMakeLists.txt"),
        *("tools/cmake/", "tools/test_cpp.sh", "tools/build_core.sh"),
        "benchmarks/CMakeLists.txt",
    ),
    "sanitized": (
        *("csrc/", "tests/cpp/", "tests/fuzz/", "CMakeLists.txt"),
        *("tools/cmake/", "tools/test_cpp.sh", "tools/fuzz.sh"),
    ),
    "bazel": (
        *("BUILD", "WORKSPACE", ".bazel", "tools/bazel/", "csrc/", "tf_ops/"),
        *("tests/cpp/", "tests/fuzz/"),
    ),
    "package": (
        *("setup.py", "pyproject.toml", "CMakeLists.txt", "csrc/CMakeLists"),
        *("tf_ops/CMakeLists", "tools/test_package.sh", "tools/build_core.sh"),
        *("tools/cmake/", "MANIFEST.in", "LICENSE", "README.md"),
        "keras_ring/launch/cli/templates/",
        "keras_ring/observe/report/templates/",
        *("keras_ring/core/native.py", "keras_ring/core/builds.py"),
        *("keras_ring/_version.py", "keras_ring/__init__.py"),
        *("tools/build_backend.py", "tools/target_frameworks.py"),
        "tools/check_source_archive.py",
    ),
}


def of_lane(lane: str, paths: Iterable[str] | None) -> Reach:
    """Returns how close changed paths are to a lane that is no pytest."""
    if paths is None:
        return Reach.OWN
    for path in paths:
        if path.startswith(LANES[lane]) or _rooms(path) is None:
            return Reach.OWN
    return Reach.APART


def of_cpp_test(name: str, paths: Iterable[str] | None) -> Reach:
    """Returns how close changed paths are to a C++ test.

    Args:
        name: What `ctest` calls it, which may end in a number of a part.
        paths: Paths within the checkout; None if it cannot be told.
    """
    if paths is None:
        return Reach.OWN
    folder = _cpp_folder(name)
    if folder is None:
        return Reach.OWN
    reach = Reach.APART
    for path in paths:
        if path.startswith(f"tests/cpp/{folder}/"):
            return Reach.OWN
        if path.startswith(("csrc/testing/", "tests/fuzz/")):
            reach = max(reach, Reach.BELOW)
        elif path.startswith("csrc/") and f"/{folder}/" in path:
            return Reach.OWN
        elif path.startswith(LANES["sanitized"]):
            reach = max(reach, Reach.BELOW)
        elif _rooms(path) is None:
            return Reach.OWN
    return reach


@cache
def _cpp_folders() -> dict[str, str]:
    return {
        path.name.removesuffix("_test.cc"): path.parent.name
        for path in (TESTS / "cpp").glob("*/*_test.cc")
    }


def _cpp_folder(name: str) -> str | None:
    """Returns the folder of `tests/cpp` that has a test, or None."""
    folders = _cpp_folders()
    fitting = [each for each in folders if name.startswith(each)]
    return folders[max(fitting, key=len)] if fitting else None
