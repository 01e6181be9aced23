"""What the variables of `--auto` ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from keras_ring._launch_protocol import auto_options, contract


class AutoSettings(NamedTuple):
    """How a program of one process is to be trained on all ranks."""

    explain: bool = False
    """Whether it is only said what would be done for that."""
    per_rank: bool = False
    """Whether the program's batch is that of each rank, not of all."""
    learning_rate: str = auto_options.KEEP
    """How the learning rate grows with the ranks: `KEEP`, `LINEAR`, `SQRT`."""
    warmup_epochs: int = 0
    """Epochs in which that learning rate is reached."""
    wait: int = 300
    """Seconds for all ranks to come where something is done once for all."""


def settings_of(environment: Mapping[str, str]) -> AutoSettings | None:
    """Returns what the environment asks for; None if `--auto` is off.

    Args:
        environment: That of a rank.

    Raises:
        ValueError: If a variable does not parse, or does not fit another one.
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
