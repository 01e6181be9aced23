"""The search, from the first sample to the last: a state machine.

It yields a setting to measure and receives its speed, again and again, until
it returns the setting that the job keeps. It reads no clock: the caller drives
it with a job or with a simulation.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator
from dataclasses import dataclass

from keras_ring.core.autotune.proposals import Proposals
from keras_ring.core.autotune.search_space import Setting
from keras_ring.core.autotune.verdict import Comparison

# How many of the settings that were tried are measured again, and how often.
# One sample is noisy: the best of many is likely to be a lucky one.
_FINALISTS = 3
_REPEATS = 2


@dataclass(frozen=True)
class Trial:
    """A setting that is to be measured.

    Args:
        phase: "warmup", "explore", "repeat" or "verify".
        setting: The value of each knob.
    """

    phase: str
    setting: Setting


@dataclass(frozen=True)
class Outcome:
    """The setting that the job keeps.

    Args:
        setting: The value of each knob.
        gain: Float, the relative increase in speed over the default; 0.0 for
            the default itself.
    """

    setting: Setting
    gain: float


# Yields trials, is sent their scores (more is better), and returns the outcome.
Tuning = Generator[Trial, float, Outcome]


def tuning(
    default: Setting, proposals: Proposals, warmup: int, max_samples: int
) -> Tuning:
    """Yields settings to measure and returns the setting to keep.

    Args:
        default: The setting to begin with, and to go back to.
        proposals: Source of the settings to try.
        warmup: Integer, the number of first samples that do not count.
        max_samples: Integer, the number of settings to try.
    """
    for _ in range(warmup):
        yield Trial("warmup", default)
    tried = []
    for _ in range(max_samples):
        setting = proposals.propose()
        score = yield Trial("explore", setting)
        proposals.tell(score)
        tried.append((score, setting))
    best = yield from _best(default, tried)
    return (yield from _verify(default, best))


def _best(
    default: Setting, tried: list[tuple[float, Setting]]
) -> Generator[Trial, float, Setting]:
    """Returns which of the settings is fastest, as far as one can tell."""
    tried = sorted(tried, key=lambda one: one[0], reverse=True)
    scores: list[tuple[list[float], Setting]] = []
    for score, setting in tried:
        if setting != default and all(setting != one for _, one in scores):
            scores.append(([score], setting))
    scores = scores[:_FINALISTS]
    for _ in range(_REPEATS if len(scores) > 1 else 0):
        for known, setting in scores:
            known.append((yield Trial("repeat", setting)))
    best, setting = 0.0, default
    for known, one in scores:
        if statistics.median(known) > best:
            best, setting = statistics.median(known), one
    return setting


def _verify(default: Setting, best: Setting) -> Tuning:
    """Returns the best setting if it is better than the default, else that."""
    comparison = Comparison()
    better = None if best != default else False
    while better is None:
        before = yield Trial("verify", default)
        first = yield Trial("verify", best)
        second = yield Trial("verify", best)
        after = yield Trial("verify", default)
        comparison.add(before, first)
        comparison.add(after, second)
        better = comparison.is_better()
    if better:
        return Outcome(best, comparison.gain)
    return Outcome(default, 0.0)
