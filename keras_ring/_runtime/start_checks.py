"""What `init()` looks at before it starts, and says to whoever has started it.

Each of these would otherwise train, and something else than was meant.
"""

from __future__ import annotations

import difflib
import os
import stat
import sys
from collections.abc import Iterable, Mapping

from keras_ring import errors
from keras_ring._launch_protocol import contract, engines
from keras_ring._runtime import native

_PREFIX = "KERAS_RING_"
# The tests' own.
_TESTS = (f"{_PREFIX}TEST_", f"{_PREFIX}STRESS_")

# Horovod's variable -> ours, where it is not of the same name.
_HOROVOD = {
    "STALL_CHECK_TIME_SECONDS": "STALL_CHECK_TIME",
    "STALL_CHECK_DISABLE": "STALL_CHECK_TIME=0",
    "STALL_SHUTDOWN_TIME_SECONDS": "STALL_SHUTDOWN_TIME",
    "GLOO_IFACE": "INTERFACE",
    "GLOO_TIMEOUT_SECONDS": "START_TIMEOUT",
    "HIERARCHICAL_ALLREDUCE": "COLLECTIVE",
    "HIERARCHICAL_ALLGATHER": "COLLECTIVE",
    "TIMELINE": "FLIGHT_DIRECTORY",
}


def check_backend() -> None:
    """Raises an error if Keras computes with another library.

    Raises:
        ConfigurationError: If it does.
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend"):
        backend = keras.backend.backend()
    else:
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise errors.ConfigurationError(
            f"Keras runs on {backend!r} here (KERAS_BACKEND, or keras.json), "
            "and keras_ring works with TensorFlow alone: set "
            "KERAS_BACKEND=tensorflow before the program imports Keras."
        )


def engine_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what makes this process a rank of what an engine has started.

    Where that engine does not tell all that a rank needs, the processes would
    train alone, each of them.

    Args:
        environment: Of this process.

    Returns:
        Values for variables of ours that are not in the environment.

    Raises:
        StartError: If this is one of several processes, and something is
            missing.
    """
    if environment.get(contract.SIZE):
        return _key_of_file(environment)
    place = engines.place_among_several(environment)
    if place is None:
        return {}
    found = ", ".join(f"{k}={v}" for k, v in place.variables.items())
    which = "one" if place.rank is None else f"rank {place.rank}"
    started = (
        f"This process is {which} of {place.size} that {place.engine} has "
        f"started ({found})"
    )
    alone = f"Set {contract.SIZE}=1 if each process is to be a job of its own."
    address = environment.get(contract.RENDEZVOUS) or place.address
    if place.rank is None or address is None:
        raise errors.StartError(
            f"{started}, which does not say all that a rank must know: each of "
            f"them would train alone. Start one process, `keras-ring run -np "
            f"{place.size} -- python ...`, which starts the ranks; or set "
            f"{contract.RENDEZVOUS} to an address and port of process 0, the "
            f"same for all{'' if place.rank is not None else ', their rank'}"
            f" and {contract.JOB_KEY}. {alone}"
        )
    key = _key_of_file(environment)
    if not key and not environment.get(contract.JOB_KEY):
        raise errors.StartError(
            f"{started}. To be the ranks of a job they need its key, the same "
            f"for all and known to nobody else: `(umask 077; openssl rand -hex "
            f"32 > key)`, and set {contract.JOB_KEY_FILE} to the path of that "
            f"file. {alone}"
        )
    return {
        contract.SIZE: str(place.size),
        contract.RANK: str(place.rank),
        contract.RENDEZVOUS: address,
        **key,
    }


def _key_of_file(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the key that is in the file, if there is one to be read.

    Raises:
        StartError: If others can read the file, or it cannot be read.
    """
    path = environment.get(contract.JOB_KEY_FILE, "")
    if not path or environment.get(contract.JOB_KEY):
        return {}
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(1024).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.StartError(
            f"{contract.JOB_KEY_FILE} is {path!r}, which cannot be read: "
            f"{error}"
        ) from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise errors.StartError(
            f"{contract.JOB_KEY_FILE} is {path!r}, which others can read or "
            f"write (mode {stat.S_IMODE(mode):o}); chmod 600 {path}"
        )
    return {contract.JOB_KEY: key}


def ignored_variables(
    environment: Mapping[str, str], known: Iterable[str]
) -> str:
    """Names the variables that somebody has set in vain, on one line.

    Args:
        environment: Of this process.
        known: The variables that count.

    Returns:
        Each with the one that may have been meant; `""` if there are none.
    """
    names = sorted({*known, contract.ERROR_FILE, contract.JOB_KEY_FILE})
    told = []
    for name in sorted(environment):
        if name.startswith("HOROVOD_"):
            told.append(f"{name} ({_instead(name, names)})")
        elif (
            name.startswith(_PREFIX)
            and name not in names
            and not name.startswith(_TESTS)
        ):
            told.append(name + _meant(name, names))
    return f"Variables without effect: {', '.join(told)}" if told else ""


def _meant(misspelt: str, names: Iterable[str]) -> str:
    """Returns the name that is nearest, in parentheses, or `""`."""
    # Without what all begin with: that alone would make any two alike.
    rests = [name.removeprefix(_PREFIX) for name in names]
    rest = misspelt.removeprefix(_PREFIX)
    close = difflib.get_close_matches(rest, rests, n=1)
    return f" (is it {_PREFIX}{close[0]}?)" if close else ""


def _instead(horovods: str, names: Iterable[str]) -> str:
    """Returns what to set in place of a variable of Horovod."""
    name = horovods.removeprefix("HOROVOD_")
    if _PREFIX + name in names:
        return f"use {_PREFIX}{name}"
    return f"use {_PREFIX}{_HOROVOD[name]}" if name in _HOROVOD else "none here"


def known_variables() -> list[str]:
    """Returns the variables that the runtime parses."""
    return [row[0] for row in native.core().describe_options()]
