"""The variables of `keras-ring run --auto`, which only Python code reads."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from keras_ring.protocol import contract

ON, EXPLAIN = "1", "explain"
GLOBAL, PER_RANK = "global", "per-rank"
KEEP, LINEAR, SQRT = "keep", "linear", "sqrt"

_MAX_DIGITS = 6


class AutoOption(NamedTuple):
    """One of the variables."""

    expected: str
    """The values that it may have, for an error message."""
    default: str
    """Its value if it is unset or empty."""
    meaning: str
    """Its description for the page of variables."""
    is_right: Callable[[str], bool]
    """Function that returns whether a text is a valid value."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


OPTIONS: Mapping[str, AutoOption] = {
    contract.AUTO: AutoOption(
        "0, 1 or explain",
        "0",
        "Whether a program of one process trains on all ranks, unchanged. "
        "explain: it says how it would, and trains nothing.",
        ("0", ON, EXPLAIN).__contains__,
    ),
    contract.AUTO_BATCH: AutoOption(
        "global or per-rank",
        GLOBAL,
        "What the batch of the program is: that of all ranks together, so that "
        "the result is that of one process; or that of each rank.",
        (GLOBAL, PER_RANK).__contains__,
    ),
    contract.AUTO_LEARNING_RATE: AutoOption(
        "keep, linear or sqrt",
        KEEP,
        "How its learning rate grows with a batch of each rank: not at all, "
        "with the number of ranks, or with the root of it.",
        (KEEP, LINEAR, SQRT).__contains__,
    ),
    contract.AUTO_WARMUP_EPOCHS: AutoOption(
        "an integer from 0 to 999999",
        "0",
        "Epochs in which such a learning rate is reached.",
        _is_number,
    ),
    contract.AUTO_WAIT: AutoOption(
        "an integer from 1 to 999999",
        "300",
        "Seconds for all ranks to come where rank 0 does something once for "
        "all, such as `os.makedirs`; then it is an error. After a tenth of "
        "them it is said who waits. A rank that handles an error, or whose "
        "program has asked for its rank, goes on alone after a thirtieth.",
        lambda text: _is_number(text) and int(text) > 0,
    ),
}


def value(name: str, environment: Mapping[str, str]) -> str:
    """Returns the value of a variable, or its default.

    Args:
        name: String, a key of `OPTIONS`.
        environment: The environment variables.
    """
    return environment.get(name) or OPTIONS[name].default


def is_on(environment: Mapping[str, str]) -> bool:
    """Returns whether this environment turns on `--auto`, or explains it."""
    return value(contract.AUTO, environment) != "0"


def problem(environment: Mapping[str, str]) -> str:
    """Returns a line on what is wrong with the variables, or `""`.

    Args:
        environment: The environment variables.
    """
    for name, option in OPTIONS.items():
        text = value(name, environment)
        if not option.is_right(text):
            return f"{name} is {text!r}: expected {option.expected}"
    if not is_on(environment):
        return ""
    batch = value(contract.AUTO_BATCH, environment)
    rate = value(contract.AUTO_LEARNING_RATE, environment)
    epochs = value(contract.AUTO_WARMUP_EPOCHS, environment)
    if rate != KEEP and batch != PER_RANK:
        return (
            f"{contract.AUTO_LEARNING_RATE} is {rate!r}: expected {KEEP}, as "
            f"{contract.AUTO_BATCH} is {batch!r} and the batch does not grow"
        )
    if int(epochs) and rate == KEEP:
        return (
            f"{contract.AUTO_WARMUP_EPOCHS} is {epochs!r}: expected 0, as "
            f"{contract.AUTO_LEARNING_RATE} is {rate!r} and there is no other "
            "learning rate to be reached"
        )
    return ""
