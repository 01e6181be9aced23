"""The lanes of the gate and of the long tier: what runs, in which order."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.tiers import durations, path_map, reach, selection
from tests.tiers.changes import ROOT
from tests.tiers.environments import ENVIRONMENTS, Environment

_PYTHON = str(ROOT / ".venv/bin/python")
# Seconds of a lane whose time nobody has taken yet.
_UNKNOWN = 60.0
# Minutes of tests of the long tier that a change pulls.
_PULLED_MINUTES = 2.0
_FUZZ_TARGETS = 5


@dataclass(frozen=True)
class Lane:
    """A part of a tier that is run, timed and reported by itself.

    Args:
        name: Of one word.
        command: The words of the command. In a command of pytest, the path of
            a file for what failed is added.
        seconds: What it takes on two quiet cores.
        note: Why it runs, or how much of it.
        kind: `pytest`, `ctest` or `other`: who can run a failed test again.
        again: The words before the names of tests that are to run again; for
            ctest, the directory of the build.
        needed: Whether nothing after it can run if it fails.
        tools: Whether it finds CMake and Ninja where they were installed.
        environment: Variables.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    note: str = ""
    kind: str = "other"
    again: tuple[str, ...] = ()
    needed: bool = False
    tools: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A lane that a change cannot touch."""

    name: str


def _make(name: str, *targets: str, **options) -> Lane:
    seconds = options.pop("seconds", None)
    if seconds is None:
        seconds = durations.read("lanes").get(name, _UNKNOWN)
    return Lane(name, ("make", *targets), seconds, **options)


def _pytest(
    name: str,
    options: Iterable[str],
    run: Iterable[str],
    seconds: float,
    *,
    environment: Environment | None = None,
    note: str = "",
) -> Lane:
    """Returns a lane of pytest.

    Args:
        name: Of the lane.
        options: Those that a test needs to run again.
        run: Those of this run as a whole.
        seconds: What it takes.
        environment: That of a lane with another framework.
        note: How much of it.
    """
    variables = {}
    # Named, since pytest takes the settings of the folder that it is given.
    command = [_PYTHON, "-m", "pytest", "-c", "pyproject.toml"]
    if environment is not None:
        command = [str(ROOT / environment.python), "-m", "pytest"]
        command += environment.options
        # The checkout holds a keras_ring, too.
        variables["PYTHONSAFEPATH"] = "1"
    command += options
    return Lane(
        name,
        (*command, *run),
        seconds,
        note,
        "pytest",
        tuple(command),
        environment=variables,
    )


def _ctest(name: str, flavour: str, words: Iterable[str], **options) -> Lane:
    directory = "build/core" if flavour == "plain" else f"build/{flavour}"
    return Lane(
        name,
        ("sh", "tools/test_cpp.sh", flavour, *words),
        kind="ctest",
        again=(directory,),
        tools=True,
        **options,
    )


def _environment(packages: bool) -> Lane:
    targets = ("system-packages",) if packages else ()
    return _make(
        "environment",
        *(*targets, ".venv/.installed"),
        needed=True,
        note="less if it is there already",
    )


def _lint() -> Lane:
    return _make("lint", "lint", needed=True)


def gate(paths: list[str] | None, seed: int) -> list[Lane | Skipped]:
    """Returns the lanes of the gate.

    Args:
        paths: What has changed; None if it cannot be told.
        seed: Of what is drawn.
    """

    def touched(name: str) -> bool:
        return reach.of_lane(name, paths) is reach.Reach.OWN

    known = durations.read("lanes")
    native = [touched(name) for name in ("cpp", "sanitized", "bazel")]
    lanes: list[Lane | Skipped] = [_environment(any(native)), _lint()]
    if touched("cpp"):
        seconds = known.get("cpp", _UNKNOWN)
        lanes.append(_ctest("cpp", "plain", (), seconds=seconds))
    else:
        lanes.append(Skipped("cpp"))
    lanes += _python(paths, seed)
    if touched("bazel"):
        lanes.append(_make("bazel", "bazel-analysis"))
    else:
        lanes.append(Skipped("bazel"))
    for environment in ENVIRONMENTS.values():
        lanes += _of_environment(environment, paths, seed)
    if touched("package"):
        lanes.append(_make("package", "test-package"))
    else:
        lanes.append(Skipped("package"))
    if touched("sanitized"):
        lanes += _sanitized(paths, seed)
    else:
        lanes.append(Skipped("sanitized"))
    return lanes + _pulled(paths, seed)


def _python(paths: list[str] | None, seed: int) -> list[Lane | Skipped]:
    drawn = selection.python_files(paths, seed)
    count = f"{len(drawn.chosen)} of {len(drawn.chosen) + len(drawn.left)}"
    draw = f"--draw={seed}"
    options = ("--tier=gate", "--pull=")
    alone = durations.read("lanes").get("alone", _UNKNOWN)
    return [
        _pytest(
            "python",
            options,
            (draw, "-n", "2", "-m", "not alone"),
            drawn.seconds / 2,
            note=f"{count} files that the change can touch",
        ),
        _pytest("alone", options, (draw, "-m", "alone"), alone),
    ]


def _of_environment(
    environment: Environment, paths: list[str] | None, seed: int
) -> list[Lane | Skipped]:
    folder = environment.folder
    if reach.of_group(folder, paths) is not reach.Reach.OWN:
        return [Skipped(folder)]
    drawn = selection.python_files(paths, seed, folder)
    count = f"{len(drawn.chosen)} of {len(drawn.chosen) + len(drawn.left)}"
    return [
        _installed(environment),
        _pytest(
            folder,
            ("--tier=gate", "--pull="),
            (f"--draw={seed}", "-n", "2", f"tests/{folder}"),
            drawn.seconds / 2,
            environment=environment,
            note=f"{count} files that the change can touch",
        ),
    ]


def _installed(environment: Environment) -> Lane:
    return _make(
        f"environment-{environment.folder}",
        f"{environment.directory}/.installed",
    )


def _sanitized(paths: list[str] | None, seed: int) -> list[Lane | Skipped]:
    lanes: list[Lane | Skipped] = []
    known = durations.read("lanes")
    for flavour in ("asan", "tsan"):
        drawn = selection.cpp_tests(paths, seed, flavour)
        left = set(durations.read(flavour)) - set(drawn.chosen)
        words = ("", f"^({'|'.join(sorted(left))})$") if left else ()
        lanes.append(
            _ctest(
                flavour,
                flavour,
                words,
                seconds=known.get(f"{flavour}-build", _UNKNOWN)
                + drawn.seconds / 2,
                note=f"{len(drawn.chosen)} tests; {len(left)} are left out",
            )
        )
        if flavour == "asan":
            names = sorted((ROOT / "tests/fuzz").glob("*_fuzz.cc"))
            targets = [path.name.removesuffix("_fuzz.cc") for path in names]
            some = random.Random(seed).sample(targets, _FUZZ_TARGETS)
            lanes.append(
                Lane(
                    "fuzz",
                    ("sh", "tools/fuzz.sh"),
                    known.get("fuzz", _UNKNOWN),
                    f"{', '.join(sorted(some))}",
                    tools=True,
                    environment={"FUZZ_TARGETS": " ".join(some)},
                )
            )
    return lanes


def _pulled(paths: list[str] | None, seed: int) -> list[Lane | Skipped]:
    parts = path_map.pulled_by(paths) - set(path_map.MAKE)
    if not parts:
        return [Skipped("pulled")]
    words = [part for part in path_map.PARTS if part in parts]
    return [
        _pytest(
            "pulled",
            ("--tier=pulled", f"--pull={','.join(words)}"),
            (
                f"--minutes={_PULLED_MINUTES}",
                *(f"--draw={seed}", "-n", "2", "-m", "not alone"),
            ),
            60 * _PULLED_MINUTES + 30,
            note=f"of {', '.join(words)}: what starts within"
            f" {_PULLED_MINUTES:.0f} minutes",
        )
    ]


def long(seed: int, fuzz_seconds: int) -> list[Lane | Skipped]:
    """Returns the lanes of the long tier: all tests, at full length."""
    tests = [
        _pytest(
            f"python-{group}",
            ("--tier=long",),
            ("-n", "2", "-m", "not alone", f"tests/{group}"),
            durations.read("lanes").get(f"python-{group}", 600.0),
        )
        for group in sorted((*reach.ROOMS, *reach.ALWAYS))
        if group not in ENVIRONMENTS or not ENVIRONMENTS[group].is_only
    ]
    whole = {"KERAS_RING_ALL_TESTS": "ON"}
    asan, tsan = (
        _ctest(
            f"{flavour}-whole",
            flavour,
            (),
            seconds=durations.read("lanes").get(f"{flavour}-whole", 900.0),
            environment=whole,
        )
        for flavour in ("asan", "tsan")
    )
    at_length = [
        _make(f"at-length-{name}", f"at-length-{name}", f"SEED={seed}")
        for name in (*("model", "faults", "kills", "saves", "chaos", "soak"),)
    ]
    return [
        _environment(packages=True),
        _lint(),
        _ctest("cpp", "plain", (), seconds=durations.read("lanes")["cpp"]),
        *tests,
        _pytest("alone-all", ("--tier=long",), ("-m", "alone"), 300.0),
        *_environments(),
        _make("package", "test-package"),
        _make("bazel-tests", "test-bazel", seconds=900.0),
        asan,
        _make(
            "fuzz-all",
            "fuzz",
            f"FUZZ_SECONDS={fuzz_seconds}",
            seconds=13.0 * fuzz_seconds,
        ),
        tsan,
        _make("parity", "parity", seconds=900.0),
        *at_length,
    ]


def _environments() -> list[Lane]:
    lanes = []
    for environment in ENVIRONMENTS.values():
        folder = environment.folder
        tests = _pytest(
            f"{folder}-all",
            ("--tier=long",),
            ("-n", "2", f"tests/{folder}"),
            durations.read("lanes").get(f"{folder}-all", 900.0),
            environment=environment,
        )
        lanes += [_installed(environment), tests]
    return lanes
