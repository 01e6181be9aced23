"""Finds the buckets of a step into which fusion has put the tensors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keras_ring.observe.report.steps import Steps
from keras_ring.observe.timeline.model import (
    Phase,
    RankTimeline,
    Spans,
    Timeline,
)

# A decision may have several collectives, of different types. Each has a tag.
_TAGS_PER_DECISION = 16


@dataclass(frozen=True)
class Bucket:
    """Buckets of the same tensors, over all steps.

    Args:
        label: Text that names the tensors.
        count: Number of such buckets.
        tensors: Median number of tensors in a bucket.
        num_bytes: Median size of a bucket, in bytes.
        seconds: Median duration of a bucket, in seconds.
        total: Total duration of the buckets, in seconds.
        algorithm: Most frequent algorithm of the reductions; `""` if it is not
            known.
    """

    label: str
    count: int
    tensors: int
    num_bytes: int
    seconds: float
    total: float
    algorithm: str = ""

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.num_bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Tensor:
    """A tensor over all steps.

    Args:
        name: Name of the tensor.
        num_bytes: Size of the tensor, in bytes.
        count: Number of its reductions.
        negotiate: Median time until all ranks had agreed, in seconds.
        shared_with: Median number of tensors in its bucket.
        cost: Its share of the time of its buckets, by bytes, in seconds.
    """

    name: str
    num_bytes: int
    count: int
    negotiate: float
    shared_with: int
    cost: float


@dataclass(frozen=True)
class Fusion:
    """The buckets of a step, as one rank has recorded them.

    Args:
        rank: Index of the rank.
        per_step: Median number of buckets in a step.
        median_bytes: Median size of a bucket, in bytes.
        step_bytes: Median number of bytes in a step.
        buckets: The buckets, by falling total time.
        tensors: The tensors, by falling cost.
    """

    rank: int
    per_step: float
    median_bytes: float
    step_bytes: float
    buckets: tuple[Bucket, ...]
    tensors: tuple[Tensor, ...]


def find_fusion(timeline: Timeline, steps: Steps) -> Fusion | None:
    """Returns the buckets that fusion made, or `None` if no bucket ran.

    Decisions are the same on all ranks, so one of them is enough: the rank
    that has recorded most.
    """
    counts = [len(rank.of(Phase.EXECUTE)) for rank in timeline.ranks]
    if not any(counts):
        return None
    row = int(np.argmax(counts))
    rank = timeline.ranks[row]
    spans = rank.of(Phase.EXECUTE)
    at = (spans["begin"] - timeline.begin_ns).astype(float)
    numbers = steps.add(row, at, np.ones(len(spans)))[steps.usual]
    sizes = steps.add(row, at, spans["value"].astype(float))[steps.usual]
    return Fusion(
        rank=rank.rank,
        per_step=_median(numbers),
        median_bytes=_median(spans["value"]),
        step_bytes=_median(sizes),
        buckets=_buckets(rank),
        tensors=_tensors(rank),
    )


def _median(values: object) -> float:
    array = np.asarray(values)
    return float(np.median(array)) if len(array) else 0.0


def _buckets(rank: RankTimeline) -> tuple[Bucket, ...]:
    spans = rank.of(Phase.EXECUTE)
    algorithms = {
        tag // _TAGS_PER_DECISION: name
        for tag, name in rank.instants(Phase.ALGORITHM)[
            ["tag", "name"]
        ].tolist()
    }
    found = []
    for name in np.unique(spans["name"]):
        chosen = spans[spans["name"] == name]
        seconds = (chosen["end"] - chosen["begin"]) / 1e9
        found.append(
            Bucket(
                label=rank.name_of(int(name)) or "(no name)",
                count=len(chosen),
                tensors=max(1, int(_median(chosen["flags"]))),
                num_bytes=int(_median(chosen["value"])),
                seconds=_median(seconds),
                total=float(seconds.sum()),
                algorithm=_usual_algorithm(rank, chosen["tag"], algorithms),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.total))


def _usual_algorithm(
    rank: RankTimeline, tags: Spans, algorithms: Mapping[int, int]
) -> str:
    numbers = (int(tag) // _TAGS_PER_DECISION for tag in tags)
    names = Counter(algorithms[n] for n in numbers if n in algorithms)
    return rank.name_of(names.most_common(1)[0][0]) if names else ""


def _tensors(rank: RankTimeline) -> tuple[Tensor, ...]:
    # Tag -> seconds, bytes and tensors of the bucket.
    runs: dict[int, tuple[float, int, int]] = {}
    for tag, begin, end, value, flags in rank.of(Phase.EXECUTE)[
        ["tag", "begin", "end", "value", "flags"]
    ].tolist():
        runs[tag] = ((end - begin) / 1e9, value, flags)
    seen = defaultdict(list)
    for name, tag, begin, end, value in rank.of(Phase.NEGOTIATE)[
        ["name", "tag", "begin", "end", "value"]
    ].tolist():
        seconds, size, fused = runs.get(tag, (0.0, 0, 0))
        cost = seconds * value / size if size else 0.0
        seen[name].append(((end - begin) / 1e9, value, fused, cost))
    found = []
    for name, uses in seen.items():
        negotiate, sizes, shared, costs = zip(*uses, strict=True)
        found.append(
            Tensor(
                name=rank.name_of(name),
                num_bytes=int(_median(sizes)),
                count=len(uses),
                negotiate=_median(negotiate),
                shared_with=max(1, int(_median(shared))),
                cost=float(sum(costs)),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.cost, each.name)))
