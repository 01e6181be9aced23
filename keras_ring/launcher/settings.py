"""Checks the `KERAS_RING_*` variables before any rank is started.

Each rank parses them again in csrc/base/options.cc, which is the authority;
looking here first turns one mistake into one line instead of one error per
rank. A test compares the names of the two tables. Those of `--auto` are in
`auto_options`, for ranks as well.
"""

from collections.abc import Callable, Mapping

from keras_ring._launch_protocol import auto_options, interfaces
from keras_ring.launcher.usage import UsageError

_PREFIX = "KERAS_RING_"
_MAX_SECONDS = 1e8
LOG_LEVELS = ("debug", "info", "warning", "error", "off")

# Takes the text, returns whether it is right.
_Check = Callable[[str], bool]


def _integer(low: int, high: int) -> _Check:
    def check(text: str) -> bool:
        digits = text.removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit()):
            return False
        return low <= int(text) <= high

    return check


def _number(low: float) -> _Check:
    def check(text: str) -> bool:
        # Python also reads "1_000" and trailing blanks; the ranks do not.
        if "_" in text or text.strip() != text:
            return False
        try:
            return low <= float(text) <= _MAX_SECONDS
        except ValueError:
            return False

    return check


_BYTES = (_integer(0, 2**63 - 1), "a number of bytes, at least 0")
_NAMES = (_integer(0, 2**20), f"an integer from 0 to {2**20}")
_TIME = (_number(0.0), "a number, at least 0")
_TIME_LIMIT = (_number(1e-3), "a number, at least 0.001")
_COLLECTIVE = (
    ("auto", "shm", "hierarchy", "ring", "mpi").__contains__,
    "auto, shm, hierarchy, ring or mpi",
)
_AUTO_OR_RING = (("auto", "ring").__contains__, "auto or ring")
_DIRECTORY = (
    lambda text: text == "off" or text.startswith("/"),
    "an absolute path, or off",
)
_LEVEL = (LOG_LEVELS.__contains__, "one of " + ", ".join(LOG_LEVELS))

SETTINGS: Mapping[str, tuple[_Check, str]] = {
    "FUSION_THRESHOLD": _BYTES,
    "PLANNED_BUCKET": _BYTES,
    "CYCLE_TIME": _TIME,
    "CACHE_CAPACITY": _NAMES,
    "STALL_CHECK_TIME": _TIME,
    "STALL_SHUTDOWN_TIME": _TIME,
    "HEARTBEAT_TIMEOUT": _TIME_LIMIT,
    "START_TIMEOUT": _TIME_LIMIT,
    "SHUTDOWN_TIMEOUT": _TIME_LIMIT,
    "PORT_RANGE": (
        lambda text: interfaces.port_range(text) is not None,
        "two ports, the lower one first, such as 30000-30099",
    ),
    "COLLECTIVE": _COLLECTIVE,
    "ALLREDUCE": (
        (
            "auto",
            "one_shot",
            "two_shots",
            "tree",
            "halving_doubling",
            "ring",
        ).__contains__,
        "auto, one_shot, two_shots, tree, halving_doubling or ring",
    ),
    "BROADCAST": (
        ("auto", "direct", "chain").__contains__,
        "auto, direct or chain",
    ),
    "ALLGATHER": _AUTO_OR_RING,
    "REDUCESCATTER": _AUTO_OR_RING,
    "ALLTOALL": _AUTO_OR_RING,
    "DETERMINISTIC": (("0", "1").__contains__, "0 or 1"),
    "HELPER_THREAD": (("auto", "0", "1").__contains__, "auto, 0 or 1"),
    "ZERO_COPY": (("0", "1").__contains__, "0 or 1"),
    "TLS": (("0", "1").__contains__, "0 or 1"),
    "AUTOTUNE": (("0", "1").__contains__, "0 or 1"),
    "AUTOTUNE_CACHE": _DIRECTORY,
    "AUTOTUNE_WARMUP_SAMPLES": (
        _integer(0, 1000),
        "an integer from 0 to 1000",
    ),
    "AUTOTUNE_STEPS_PER_SAMPLE": (
        _integer(1, 100000),
        "an integer from 1 to 100000",
    ),
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": (
        _integer(2, 1000),
        "an integer from 2 to 1000",
    ),
    "LOG_LEVEL": _LEVEL,
    "FLIGHT_DIRECTORY": _DIRECTORY,
    "STATUS_DIR": _DIRECTORY,
    "TIMELINE_MARK_CYCLES": (("0", "1").__contains__, "0 or 1"),
}


def check_settings(environment: Mapping[str, str]) -> None:
    """Raises a UsageError for the first variable that does not parse.

    Args:
        environment: The environment that the ranks will get.
    """
    for name, (check, expected) in SETTINGS.items():
        text = environment.get(_PREFIX + name, "")
        if text and not check(text):
            raise UsageError(
                f"{_PREFIX}{name} is {text!r}: expected {expected}"
            )
    if wrong := auto_options.problem(environment):
        raise UsageError(wrong)
