"""The settings of `--auto`, from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from keras_ring.protocol import auto_options, contract


class AutoSettings(NamedTuple):
    """The settings for training a program of one process on all ranks."""

    explain: bool = False
    """True if `--auto` only prints what it would do."""
    per_rank: bool = False
    """True if the program's batch is that of each rank and not of all."""
    learning_rate: str = auto_options.KEEP
    """Growth of the learning rate with the ranks: `KEEP`, `LINEAR`, `SQRT`."""
    warmup_epochs: int = 0
    """Number of epochs after which that learning rate is reached."""
    wait: int = 300
    """Seconds that ranks wait for each other to make a call once for all."""


def settings_of(environment: Mapping[str, str]) -> AutoSettings | None:
    """Returns the settings in an environment, or `None` if `--auto` is off.

    Args:
        environment: Mapping, the environment variables of a rank.

    Raises:
        ValueError: If a variable is not valid, or contradicts another one.
    """
    if wrong := auto_options.problem(environment):
        raise ValueError(wrong)
    if not auto_options.is_on(environment):
        return None
    of = auto_options.value
    return AutoSettings(
        explain=of(contract.AUTO, environment) == auto_options.EXPLAIN,
        per_rank=of(contract.AUTO_BATCH, environment) == auto_options.PER_RANK,
        learning_rate=of(contract.AUTO_LEARNING_RATE, environment),
        warmup_epochs=int(of(contract.AUTO_WARMUP_EPOCHS, environment)),
        wait=int(of(contract.AUTO_WAIT, environment)),
    )
