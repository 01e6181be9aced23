"""Judges a script's run on ranks by what one process made of it."""

import dataclasses
import os
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from tests.auto import difference
from tests.auto.starting import Run

EXACT = "exact"
REFUSED = "refused"
RANDOM = "random"
DIFFERENT = "different"
# Relative to the largest weight, in float64.
WEIGHTS_BOUND = 1e-12
VALUES_BOUND = 1e-9
# "[0] ", or "[0-1] " where several ranks say the same.
_PREFIX = re.compile(r"^\[(\d+)((?:[-,]\d+)*)\] ?")
_REFUSAL = re.compile(
    r"^(?:\[[-,\d]+\] ?)?keras_ring\.errors\.(\w+: .+)", re.MULTILINE
)
_TIME = re.compile(r"\b\d+(?:\.\d+)?(?:s|ms|us)(?:/(?:step|epoch))?\b")
_WARNED = re.compile(r"keras_ring: WARNING: \S+ writes '([^']+)' on each of")
# Lines of progress, which tell times; what they say is in the histories.
_PROGRESS = re.compile(r"━|\x08|\r.|^\d+/\d+ - ")
# A loss has fallen if at least by so much of itself.
_FALL = 0.02


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is thought of a run on ranks.

    Args:
        word: `exact`, `refused`, `random` or `different`.
        reason: What differs first, or what refused it.
        apart: The largest relative difference of weights.
        shared: Whether ranks have reduced a tensor at least as often as there
            were steps. If not, each of them has done the work of all.
        told: A file that the script itself writes, on each rank: only with a
            warning that names it. Its content is compared all the same.
        printed: What differs first in what was printed, or ''. It decides
            nothing: times are printed, too.
    """

    word: str
    reason: str = ""
    apart: float = 0.0
    shared: bool = False
    told: str = ""
    printed: str = ""


def judge(
    one: Run,
    many: Run,
    random: bool = False,
    weights_bound: float = WEIGHTS_BOUND,
    values_bound: float = VALUES_BOUND,
    calls_of_rank_0: Collection[str] = (),
) -> Verdict:
    """Compares ranks with one process.

    Args:
        one: The run of one process; it has to have succeeded.
        many: The run on ranks.
        random: Whether the script draws numbers that nobody can repeat.
        weights_bound: How far weights may be apart.
        values_bound: Likewise what methods returned, and numbers in files.
        calls_of_rank_0: Methods that rank 0 alone calls, in a callback of the
            program.
    """
    if one.returncode:
        raise ValueError(
            f"one process fails, with {one.returncode}: {_last(one.stderr)}"
        )
    if many.returncode:
        if refusal := _refusal(many):
            return Verdict(REFUSED, refusal)
        return Verdict(DIFFERENT, f"exit {many.returncode}: {_failure(many)}")
    if reason := _unequal_ranks(many):
        return Verdict(DIFFERENT, reason)
    printed, shared = _printed(one, many), _shared(many)
    told, twice = _written_twice(many)
    if random:
        reason = _unlike(one, many) or twice
        return Verdict(
            DIFFERENT if reason else RANDOM, reason, 0.0, shared, told, printed
        )
    apart = _apart(one.ranks[0], many.ranks[0])
    reason = (
        _other_weights(one.ranks[0], many.ranks[0], weights_bound)
        or _other_calls(one.ranks[0], many, values_bound, calls_of_rank_0)
        or twice
        or difference.of_folders(one.work, many.work, values_bound)
    )
    word = DIFFERENT if reason else EXACT
    return Verdict(word, reason, apart, shared, told, printed)


def _shared(run: Run) -> bool:
    steps = sum(step for _, step, _ in run.ranks[0]["optimizers"])
    return all(recording["reduced"] >= max(steps, 1) for recording in run.ranks)


def _refusal(run: Run) -> str:
    for recording in run.ranks:
        error = recording and recording["error"]
        if error and error["class"].startswith("keras_ring.errors."):
            return f"{error['class'].rpartition('.')[2]}: {error['text']}"
    found = _REFUSAL.search(run.stderr)
    return found.group(1) if found else ""


def _failure(run: Run) -> str:
    for rank, recording in enumerate(run.ranks):
        error = recording and recording["error"]
        if error:
            text = " ".join(error["text"].split())[:300]
            return f"rank {rank}: {error['class']}: {text}"
    return _last(run.stderr)


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was written"


def _unequal_ranks(run: Run) -> str:
    """Ranks hold the same weights, bit by bit, whatever was computed."""
    for rank, recording in enumerate(run.ranks):
        if recording is None:
            return f"rank {rank} has recorded nothing"
    first = run.ranks[0]
    for rank, other in enumerate(run.ranks[1:], 1):
        names = [
            [kind for kind, _ in recording["models"]]
            for recording in (first, other)
        ]
        if names[0] != names[1]:
            return f"rank {rank} has models {names[1]}, rank 0 {names[0]}"
        for place, mine, theirs in _pairs(first, other):
            if mine.tobytes() != theirs.tobytes():
                apart = difference.relative(mine, theirs)
                return f"{place}: ranks 0 and {rank} are {apart:.1e} apart"
    return ""


def _pairs(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Weights of two recordings that have the same models."""
    pairs = []
    for index, ((kind, mine), (_, theirs)) in enumerate(
        zip(one["models"], other["models"], strict=False)
    ):
        for (name, a), (_, b) in zip(mine, theirs, strict=False):
            pairs.append((f"model {index} ({kind}), {name}", a, b))
    for index, ((kind, _, mine), (_, _, theirs)) in enumerate(
        zip(one["optimizers"], other["optimizers"], strict=False)
    ):
        for place, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            pairs.append((f"optimizer {index} ({kind}), {place}", a, b))
    return pairs


def _scale(recording: Any) -> float:
    """The largest weight, which weights' differences are related to.

    Not more than 1: what a normalization has seen can be of any size.
    """
    weights = (weight for _, weight, _ in _pairs(recording, recording))
    return min(1.0, difference.largest(weights))


def _apart(one: Any, other: Any) -> float:
    scale = _scale(one)
    return max(
        (difference.relative(a, b, scale) for _, a, b in _pairs(one, other)),
        default=0.0,
    )


def _other_weights(one: Any, other: Any, bound: float) -> str:
    shapes = [
        [
            (kind, [weight.shape for _, weight in weights])
            for kind, weights in recording["models"]
        ]
        for recording in (one, other)
    ]
    if shapes[0] != shapes[1]:
        return (
            f"models {[kind for kind, _ in shapes[1]]} or their weights,"
            f" not {[kind for kind, _ in shapes[0]]}"
        )
    steps = [
        [iterations for _, iterations, _ in recording["optimizers"]]
        for recording in (one, other)
    ]
    if steps[0] != steps[1]:
        return f"optimizers went {steps[1]} steps, not {steps[0]}"
    scale = _scale(one)
    for place, mine, theirs in _pairs(one, other):
        apart = difference.relative(mine, theirs, scale)
        if not apart <= bound:
            return f"{place}: {apart:.1e} apart"
    return ""


def _other_calls(
    one: Any, many: Run, bound: float, of_rank_0: Collection[str]
) -> str:
    """All ranks return the whole result, as one process does."""
    for rank, other in enumerate(many.ranks):
        calls = [
            (name, value)
            for name, value in one["calls"]
            if rank == 0 or name not in of_rank_0
        ]
        names = [[name for name, _ in each] for each in (calls, other["calls"])]
        if names[0] != names[1]:
            return f"rank {rank} called {_calls(names[1], names[0])}"
        for index, ((name, mine), (_, theirs)) in enumerate(
            zip(calls, other["calls"], strict=True)
        ):
            where = f"rank {rank}, call {index} ({name})"
            if found := difference.of_values(mine, theirs, bound, where):
                return found
    return ""


def _calls(names: list[str], wanted: list[str]) -> str:
    return f"{len(names)} methods ({names[:6]}), not {len(wanted)}"


def _written_twice(many: Run) -> tuple[str, str]:
    """Files that several ranks write: one with a warning, one without."""
    writers: dict[str, list[int]] = {}
    for rank, recording in enumerate(many.ranks):
        for path in recording["writes"]:
            writers.setdefault(path, []).append(rank)
    warned = {
        _kind_of_file(os.path.relpath(many.work / path, many.work))
        for path in _WARNED.findall(many.stdout + many.stderr)
    }
    told, untold = "", ""
    for path, ranks in sorted(writers.items(), reverse=True):
        if len(ranks) < 2:
            continue
        if _kind_of_file(path) in warned:
            told = path
        else:
            untold = f"{path} is written by ranks {ranks}"
    return told, untold


def _kind_of_file(path: str) -> tuple[str, str]:
    """A line is warned of once, and may write one file after the other."""
    folder, name = os.path.split(path)
    return folder, os.path.splitext(name)[1]


def _unlike(one: Run, many: Run) -> str:
    """What random numbers cannot explain."""
    kinds = [[k for k, _ in r["models"]] for r in (one.ranks[0], many.ranks[0])]
    if kinds[0] != kinds[1]:
        return f"models {kinds[1]}, not {kinds[0]}"
    steps = [
        [step for _, step, _ in run.ranks[0]["optimizers"]]
        for run in (one, many)
    ]
    if steps[0] != steps[1]:
        return f"optimizers went {steps[1]} steps, not {steps[0]}"
    for rank, recording in enumerate(many.ranks):
        mine, theirs = one.ranks[0]["calls"], recording["calls"]
        names = [[name for name, _ in calls] for calls in (mine, theirs)]
        if names[0] != names[1]:
            return f"rank {rank} called {_calls(names[1], names[0])}"
        for index, ((name, a), (_, b)) in enumerate(
            zip(mine, theirs, strict=True)
        ):
            where = f"rank {rank}, call {index} ({name})"
            if name == "fit" and (found := _unlike_history(a, b)):
                return f"{where}: {found}"
            if shapes(a) != shapes(b):
                return f"{where}: shapes {shapes(b)}, not {shapes(a)}"
    return difference.of_folders(one.work, many.work, np.inf, contents=False)


def _unlike_history(one: dict, other: dict) -> str:
    if list(one) != list(other):
        return f"keys {list(other)}, not {list(one)}"
    for key, values in one.items():
        if len(values) != len(other[key]):
            return f"{key} has {len(other[key])} epochs, not {len(values)}"
        if not np.isfinite(other[key]).all():
            return f"{key} is {other[key]}"
        # Parts of a loss may rise while it falls.
        if key != "loss" or len(values) < 2:
            continue
        falls = [1 - each[-1] / each[0] for each in (values, other[key])]
        if falls[0] > _FALL and not falls[0] / 3 < falls[1] < falls[0] * 3:
            return f"{key} falls by {falls[1]:.0%}, not by {falls[0]:.0%}"
    return ""


def shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shapes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shapes(item) for item in value]
    return np.shape(value)


def _printed(one: Run, many: Run) -> str:
    by_rank: dict[int, list[str]] = {}
    for line in many.stdout.splitlines():
        found = _PREFIX.match(line)
        ranks = {int(found.group(1)) if found else 0}
        if found and found.group(2):
            ranks.add(int(re.split("[-,]", found.group(2))[-1]))
        for rank in ranks:
            by_rank.setdefault(rank, []).append(_PREFIX.sub("", line))
    lines = _lasting(one.stdout.splitlines())
    shown = _lasting(by_rank.pop(0, []))
    others = {rank: len(_lasting(said)) for rank, said in by_rank.items()}
    if others := {rank: count for rank, count in others.items() if count}:
        return f"other ranks print lines, too: {others}"
    return difference.of_texts(
        "\n".join(lines), "\n".join(shown), 1e-6, "printed"
    )


def _lasting(lines: list[str]) -> list[str]:
    return [
        _TIME.sub("", line).rstrip()
        for line in lines
        if line.strip()
        and not _PROGRESS.search(line)
        and not line.startswith("keras_ring: ")
    ]
