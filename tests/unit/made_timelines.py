"""Timelines of jobs that are not there, with causes planted into them.

A step of a rank: it waits for its data, computes, and submits the tensors of a
bucket at a time while it computes. A bucket runs once all ranks are ready with
it and the one before is done; the step ends with the last bucket.
"""

import dataclasses
import json

import numpy as np

from keras_ring.observe.timeline.model import (
    SPAN,
    Kind,
    Phase,
    RankTimeline,
    Timeline,
)

MS = 1_000_000
BEGIN = 50_000 * MS
MAIN, EXEC = 1, 2
THREADS = {MAIN: "MainThread", EXEC: "kr-exec"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What a job does in each step; times in ms.

    `slow_data`, `slow_compute`: by rank, what comes on top. `checkpoint`: how
    long rank 0 takes for one, after each `checkpoint_every` steps.
    `slow_link`: rank for which the others wait in collectives, and by how much.
    """

    size: int = 4
    steps: int = 20
    hosts: int = 1
    data: float = 0.3
    compute: float = 20.0
    buckets: int = 4
    tensors: int = 5
    bucket_bytes: int = 8 << 20
    transfer: float = 1.0
    slow_data: dict = dataclasses.field(default_factory=dict)
    slow_compute: dict = dataclasses.field(default_factory=dict)
    checkpoint: float = 0.0
    checkpoint_every: int = 0
    slow_link: tuple | None = None
    seed: int = 1


class _Rank:
    def __init__(self, rank):
        self.rank = rank
        self.names = {}
        self.records = []

    def name(self, text):
        return self.names.setdefault(text, len(self.names) + 1)

    def add(self, phase, begin, end, name="", **fields):
        values = {"kind": Kind.SPAN, "flags": 0, "thread": MAIN, "peer": -1}
        values |= {"tag": 0, "value": 0} | fields
        values |= {"phase": phase, "name": self.name(name) if name else 0}
        values |= {"begin": round(begin * MS), "end": round(end * MS)}
        self.records.append(tuple(values[key] for key in SPAN.names))


def make(job):
    """Returns the timeline of a job."""
    rng = np.random.default_rng(job.seed)
    ranks = [_Rank(rank) for rank in range(job.size)]
    times = np.full(job.size, BEGIN / MS)
    for step in range(1, job.steps + 1):
        times = _step(job, ranks, step, times, rng)
    return Timeline(ranks=tuple(_finished(job, rank) for rank in ranks))


def _step(job, ranks, step, times, rng):
    """Returns when each rank has ended the step."""
    begins = times.copy()
    data = job.data * rng.uniform(0.8, 1.2, job.size)
    compute = job.compute * rng.uniform(0.99, 1.01, job.size)
    for rank, extra in job.slow_data.items():
        data[rank] += extra * rng.uniform(0.8, 1.2)
    for rank, extra in job.slow_compute.items():
        compute[rank] += extra * rng.uniform(0.8, 1.2)
    if job.checkpoint_every and step % job.checkpoint_every == 1 and step > 1:
        ranks[0].add(Phase.CHECKPOINT, begins[0], begins[0] + job.checkpoint)
        begins[0] += job.checkpoint
    for rank in ranks:
        begin = begins[rank.rank]
        rank.add(Phase.DATA, begin, begin + data[rank.rank])
    done = 0.0
    for bucket in range(job.buckets):
        share = 0.3 + 0.7 * (bucket + 1) / job.buckets
        ready = begins + data + compute * share
        tag = 16 * (step * job.buckets + bucket)
        done = _bucket(job, ranks, bucket, tag, ready, done)
    ends = np.full(job.size, done + 0.1)
    for rank in ranks:
        index = rank.rank
        rank.add(Phase.STEP, begins[index], ends[index], value=step)
    return ends


def _bucket(job, ranks, bucket, tag, ready, free):
    """Returns when a bucket is done, on all ranks alike."""
    last = int(np.argmax(ready))
    late = float(ready.max() - ready.min())
    decided = float(ready.max()) + 0.05
    begin = max(decided, free)
    slow, extra = job.slow_link or (-1, 0.0)
    end = begin + job.transfer + extra
    label = f"allreduce 'layer_{bucket}/0'"
    if job.tensors > 1:
        label += f" and {job.tensors - 1} more"
    size = job.bucket_bytes
    for rank in ranks:
        common = {"tag": tag, "thread": EXEC}
        for tensor in range(job.tensors):
            before = 0.01 * (job.tensors - 1 - tensor)
            rank.add(
                Phase.NEGOTIATE,
                ready[rank.rank] - before,
                decided - before / 2,
                f"layer_{bucket}/{tensor}",
                value=size // job.tensors,
                **common,
            )
        rank.add(Phase.QUEUE, decided, begin, **common)
        rank.add(
            Phase.EXECUTE,
            begin,
            end,
            label,
            value=size,
            flags=job.tensors,
            **common,
        )
        peer = slow if slow not in (-1, rank.rank) else -1
        waited = begin + 0.3 * job.transfer + extra
        rank.add(Phase.WAIT, begin, waited, peer=peer, **common)
        rank.add(Phase.REDUCE, waited, waited + 0.3 * job.transfer, **common)
        rank.add(Phase.CALLBACK, end - 0.1 * job.transfer, end, **common)
        rank.add(
            Phase.LATE,
            decided,
            decided,
            kind=Kind.INSTANT,
            peer=last,
            **common | {"value": round(late * MS)},
        )
    return end


def _finished(job, rank):
    spans = np.array(rank.records, SPAN)
    rank.add(Phase.NEGOTIATE, 0, 0, "pending", kind=Kind.COUNTER)
    pending = rank.records.pop()
    every = spans[spans["phase"] == Phase.STEP]
    samples = np.array([pending] * len(every), SPAN)
    samples["begin"] = samples["end"] = every["begin"]
    samples["value"] = np.arange(len(samples))
    spans = np.concatenate([spans, samples])
    per_host = -(-job.size // job.hosts)
    host = rank.rank // per_host
    return RankTimeline(
        rank=rank.rank,
        size=job.size,
        local_rank=rank.rank % per_host,
        host=f"node{host + 1}",
        pid=1000 + rank.rank,
        version="0.1",
        settings={"KERAS_RING_FUSION_THRESHOLD": "67108864"},
        started_unix_ns=1_700_000_000_000_000_000,
        started_ns=BEGIN - MS,
        offset_ns=0,
        error_ns=1500 if host else 0,
        ended_ns=int(spans["end"].max()) + MS,
        spans=spans[np.lexsort((-spans["end"], spans["begin"]))],
        names={number: text for text, number in rank.names.items()},
        threads=THREADS,
    )


def write_parts(timeline, directory, *, offsets=None):
    """Writes what the core would have written.

    `offsets`: by rank, how far rank 0's clock is ahead, in ns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for rank in timeline.ranks:
        offset = (offsets or {}).get(rank.rank, 0)
        lines = [
            {
                "type": "rank",
                "format": "keras_ring-timeline",
                "version": 1,
                "rank": rank.rank,
                "size": rank.size,
                "local_rank": rank.local_rank,
                "host": rank.host,
                "pid": rank.pid,
                "started_unix_ns": rank.started_unix_ns,
                "started_ns": rank.started_ns - offset,
                "keras_ring": rank.version,
                "settings": dict(rank.settings),
            },
            *(
                {"type": "name", "id": number, "text": text}
                for number, text in rank.names.items()
            ),
            *(
                {"type": "thread", "id": number, "name": name}
                for number, name in rank.threads.items()
            ),
            {
                "type": "clock",
                "at_ns": rank.started_ns - offset,
                "offset_ns": offset,
                "error_ns": rank.error_ns or 0,
            },
        ]
        if rank.ended_ns is not None:
            end = {"type": "end", "ended_ns": rank.ended_ns - offset}
            lines.append(end | {"dropped": rank.dropped, "reason": rank.reason})
        spans = rank.spans.copy()
        spans["begin"] -= offset
        spans["end"] -= offset
        stem = f"rank.{rank.rank}"
        (directory / f"{stem}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
        (directory / f"{stem}.spans").write_bytes(spans.tobytes())
