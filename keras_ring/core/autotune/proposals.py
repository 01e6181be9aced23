"""Proposes settings to try, by Optuna."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from keras_ring import errors
from keras_ring.core.autotune.search_space import Knob, Setting, defaults

# Settings that are drawn at random before the optimiser begins to learn. More
# than a third of the usual 20 samples: with fewer, it settles too early
# (measured on simulated surfaces of six knobs).
_RANDOM_FIRST = 10


class Proposals(Protocol):
    """Proposes settings and is told how fast they are."""

    def propose(self) -> Setting:
        """Returns a setting to try."""

    def tell(self, score: float) -> None:
        """Takes the score of the setting that was proposed last."""


class OptunaProposals:
    """Proposals of Optuna's tree-structured Parzen estimator.

    The estimator suits mixed spaces like this one, where some knobs are
    numbers on a logarithmic scale and others are choices. A proposal takes
    milliseconds. The first proposal is the default.

    Args:
        knobs: The knobs that are tuned.
        seed: Integer, the seed of the estimator.

    Raises:
        ConfigurationError: If Optuna is not installed.
    """

    def __init__(self, knobs: Sequence[Knob], seed: int = 0) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._knobs = knobs
        self._study: Any = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_RANDOM_FIRST
            ),
        )
        self._trial: Any = None
        default = defaults(knobs)
        self._study.enqueue_trial(
            {
                knob.name: default[knob.name]
                if knob.is_choice
                else knob.position(default[knob.name])
                for knob in knobs
            }
        )

    def propose(self) -> Setting:
        """Returns a setting to try."""
        self._trial = self._study.ask()
        return {knob.name: self._value(knob) for knob in self._knobs}

    def tell(self, score: float) -> None:
        """Takes the score of the setting that was proposed last."""
        self._study.tell(self._trial, score)

    def _value(self, knob: Knob) -> int:
        if knob.is_choice:
            choices = list(range(knob.low, knob.high + 1))
            return int(self._trial.suggest_categorical(knob.name, choices))
        return knob.at(self._trial.suggest_float(knob.name, 0.0, 1.0))


def _optuna() -> Any:
    """Imports Optuna, which is not needed without autotune."""
    try:
        import optuna
    except ImportError as error:
        raise errors.ConfigurationError(
            f"KERAS_RING_AUTOTUNE is 1, but Optuna cannot be imported ({error})"
            ": `pip install keras-ring[autotune]` installs it for rank 0, which"
            " is the one to need it."
        ) from None
    return optuna
