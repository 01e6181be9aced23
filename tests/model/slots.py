"""How ShmCollective uses its slots: csrc/collective/shm/shm_collective.cc.

It follows the comments there: what a rank does with a chunk, in which
order, and what it waits for. Change the one, change the other.

Each rank runs a list of steps. Only its owner writes a slot, and a step says
what it leaves there, so the memory and the counts of a rank follow from how far
that rank has come: a state is nothing but one position per rank. A write and a
read are two steps each, so that others may come between the halves; what is
half written is content of its own.
"""

import dataclasses
import itertools

from tests.model.explorer import Violation

HALF_WRITTEN = "half written"
RESULT = "result"  # the place behind those of the ranks


@dataclasses.dataclass
class Step:
    """Waits for `awaits`, looks at `reads`, then does the rest."""

    label: str
    awaits: tuple = ()  # of (rank, phase, chunk)
    reads: tuple = ()  # of (rank, place in its memory, content)
    writes: tuple = ()  # of (place in the own memory, content)
    publishes: tuple = ()  # of (phase, chunk)


@dataclasses.dataclass(frozen=True)
class Collective:
    """`kind` is "one_shot", "two_shots", "scatter" or "move".

    Of a "move", streams[rank] tells how many chunks that rank's bytes take:
    there is nothing to take of one whose stream has ended.
    """

    kind: str
    chunks: int = 1
    streams: tuple = ()


@dataclasses.dataclass(frozen=True)
class Faults:
    """What a broken protocol would do."""

    packs_without_waiting: bool = False
    publishes_before_writing: bool = False
    reduces_without_waiting: bool = False
    unpacks_after_reducing: bool = False
    unpacks_without_waiting: bool = False
    moves_through_the_result: bool = False
    waits_for_the_last_chunk: bool = False


class Program:
    """The steps of one rank through a sequence of collectives."""

    def __init__(self, rank, size, faults):
        self.rank = rank
        self.others = [(rank + i) % size for i in range(1, size)]
        self.size = size
        self.faults = faults
        self.steps = []
        self.next_chunk = 1
        self.tag = 0

    def run(self, collective):
        self.tag += 1
        first = self.next_chunk
        chunks = 1 if collective.kind == "one_shot" else collective.chunks
        self.next_chunk += chunks
        if collective.kind == "one_shot":
            self.pack(first, range(self.size))
            self.reduce_everything(first)
        elif collective.kind == "move":
            self.move(first, collective)
        else:
            self.two_shots(first, collective)

    def two_shots(self, first, collective):
        chunks, unpacks = collective.chunks, collective.kind == "two_shots"
        for i in range(chunks + 2):
            work = [
                lambda i=i: i >= 2 and unpacks and self.unpack(first + i - 2),
                lambda i=i: i < chunks and self.pack(first + i, self.others),
                lambda i=i: (
                    1 <= i <= chunks
                    and self.reduce_part(first + i - 1, unpacks)
                ),
            ]
            if self.faults.unpacks_after_reducing:
                work.append(work.pop(0))
            for step in work:
                step()

    def move(self, first, collective):
        places = list(range(self.size))
        if self.faults.moves_through_the_result:
            places.append(RESULT)
        for i in range(collective.chunks + 1):
            if i < collective.chunks:
                own = i < collective.streams[self.rank]
                self.pack(first + i, places if own else ())
            if i >= 1:
                chunk = first + i - 1
                for rank in self.others:
                    if i - 1 < collective.streams[rank]:
                        self.await_packed(rank, chunk)
                        self.read("take", rank, chunk, places)
                self.add("taken", publishes=(("reduced", chunk),))

    def pack(self, chunk, places):
        lag = 1 if self.faults.waits_for_the_last_chunk else 2
        waits = chunk > lag and not self.faults.packs_without_waiting
        awaits = [
            (rank, "reduced", chunk - lag) for rank in self.others if waits
        ]
        slots = [(place, chunk % 2) for place in places]
        publishes = (("packed", chunk),)
        early = self.faults.publishes_before_writing
        self.add(
            f"pack {chunk}",
            awaits=awaits,
            writes=[(slot, HALF_WRITTEN) for slot in slots],
            publishes=publishes if early else (),
        )
        # The tag is in its place before the count says so.
        self.add(
            f"packed {chunk}",
            writes=[
                *((slot, chunk) for slot in slots),
                (("tag", chunk % 2), self.tag),
            ],
        )
        self.add("publish", publishes=() if early else publishes)

    def await_packed(self, rank, chunk):
        waits = not self.faults.reduces_without_waiting
        self.add(
            f"await {rank}",
            awaits=[(rank, "packed", chunk)] if waits else (),
        )
        self.add(
            f"check the tag of {rank}",
            reads=[(rank, ("tag", chunk % 2), self.tag)] if waits else (),
        )

    def reduce_everything(self, chunk):
        for rank in self.others:
            self.await_packed(rank, chunk)
        for rank in self.others:
            self.read("reduce", rank, chunk, range(self.size))
        self.add(f"reduced {chunk}", publishes=(("reduced", chunk),))

    def reduce_part(self, chunk, keeps_result):
        for rank in self.others:
            self.await_packed(rank, chunk)
        reads = [(rank, (self.rank, chunk % 2), chunk) for rank in self.others]
        result = (RESULT, chunk % 2)
        self.add(
            f"reduce {chunk}",
            reads=reads,
            writes=[(result, HALF_WRITTEN)] if keeps_result else (),
        )
        self.add(
            f"reduced {chunk}",
            reads=reads,
            writes=[(result, chunk)] if keeps_result else (),
        )
        self.add("publish", publishes=(("reduced", chunk),))

    def unpack(self, chunk):
        for rank in self.others:
            if not self.faults.unpacks_without_waiting:
                self.add(f"await {rank}", awaits=[(rank, "reduced", chunk)])
            self.read("unpack", rank, chunk, [RESULT])

    def read(self, verb, rank, chunk, places):
        reads = [(rank, (place, chunk % 2), chunk) for place in places]
        for half in ("begin", "end"):
            self.add(f"{half} to {verb} {chunk} of {rank}", reads=reads)

    def add(self, label, **rest):
        rest = {name: tuple(value) for name, value in rest.items()}
        self.steps.append(Step(label, **rest))


def snapshots(steps):
    """The memory and the counts of a rank before each of its steps."""
    memory, counts = {}, {"packed": 0, "reduced": 0}
    result = [(memory, counts)]
    for step in steps:
        memory, counts = {**memory, **dict(step.writes)}, dict(counts)
        for phase, chunk in step.publishes:
            assert chunk == counts[phase] + 1, "counts must not jump"
            counts[phase] = chunk
        result.append((memory, counts))
    return result


class Slots:
    """Ranks that run `collectives`. A state is a position for each rank."""

    def __init__(self, size, collectives, faults=None):
        programs = [
            Program(rank, size, faults or Faults()) for rank in range(size)
        ]
        for program, collective in itertools.product(programs, collectives):
            program.run(collective)
        self.steps = [program.steps for program in programs]
        # Only at a step's end does anything change for the others.
        self.snapshots = [snapshots(steps) for steps in self.steps]

    def initial(self):
        return (0,) * len(self.steps)

    def is_final(self, positions):
        return all(
            at == len(steps)
            for at, steps in zip(positions, self.steps, strict=True)
        )

    def fault(self, positions):
        return None

    def actions(self, positions):
        for rank, at in enumerate(positions):
            if at == len(self.steps[rank]):
                continue
            step = self.steps[rank][at]
            if any(
                self.snapshots[other][positions[other]][1][phase] < chunk
                for other, phase, chunk in step.awaits
            ):
                continue
            label = f"rank {rank}: {step.label}"
            self.check_reads(positions, step, label)
            yield label, (*positions[:rank], at + 1, *positions[rank + 1 :])

    def check_reads(self, positions, step, label):
        for other, place, expected in step.reads:
            content = self.snapshots[other][positions[other]][0].get(place)
            if content != expected:
                raise Violation(
                    f"finds {content} in {place} of rank {other} instead of "
                    f"{expected}",
                    label,
                )


ONE_SHOT = Collective("one_shot")


def two_shots(chunks):
    return Collective("two_shots", chunks)


def scatter(chunks):
    return Collective("scatter", chunks)


def move(*streams):
    return Collective("move", max(streams), streams)
