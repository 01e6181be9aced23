"""The messages between a rank of an elastic job and its launcher.

`csrc/comm/rendezvous/membership.h` has the other side. Numbers are varints
(LEB128, of 7 bits each), texts a length and UTF-8.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

_REPORT, _NEXT, _END, _WAITING, _OVER = 1, 2, 3, 4, 5
_BEGUN, _WHOLE = 1, 2
_MOST_TEXT = 1024

MOST_BYTES = 64 << 10
"""The length of the longest message."""


class MessageError(ValueError):
    """A message is malformed."""


class Outcome(enum.IntEnum):
    """The outcome of a step that was open when the job lost a rank."""

    OPEN = 0
    COMMITTED = 1
    DISCARDED = 2


@dataclass(frozen=True)
class StepReport:
    """How far a rank has come in the steps of a commit group.

    Args:
        settled: Integer, the number of steps of which it knows the outcome.
        begun: Boolean, whether an operation of the next step has run.
        whole: Boolean, whether all of them have ended well, and the rank waits
            for the commit.
    """

    settled: int = 0
    begun: bool = False
    whole: bool = False


class Stand(enum.IntEnum):
    """Where a process is that reports.

    - `LEFT`: its generation has ended.
    - `ADMITS`: it is between two steps, and others may come in.
    - `JOINS`: it is of no generation yet.
    """

    LEFT = 0
    ADMITS = 1
    JOINS = 2


@dataclass(frozen=True)
class MemberReport:
    """The report of a process that waits for the next generation.

    Args:
        generation: Integer, its last generation.
        host: String, the address where this rank would serve the store of the
            next one.
        port: Integer, the port there.
        cause: String, why the generation has ended.
        steps: `StepReport`s by the name of their commit group.
        stand: `Stand` of the process.
    """

    generation: int
    host: str = ""
    port: int = 0
    cause: str = ""
    steps: Mapping[str, StepReport] = field(default_factory=dict)
    stand: Stand = Stand.LEFT


@dataclass(frozen=True)
class Settlement:
    """The outcome of an open step, on all ranks.

    The step before it is committed, for a rank that waits for that yet.

    Args:
        group: String, the name of the commit group.
        step: Integer, the number of the step in its group.
        outcome: `Outcome` of the step.
    """

    group: str
    step: int
    outcome: Outcome


@dataclass(frozen=True)
class NextGeneration:
    """The place of a rank in the next generation, which it is told.

    Args:
        generation: Integer, the number of the generation.
        rank: Integer, the rank in it.
        members: Tuple of its members, in the order of their ranks.
        host: String, the address where its rank 0 serves the store.
        port: Integer, the port there.
        settled: Tuple of `Settlement`s.
        admitted: Boolean, whether all members were between two steps, and who
            waited has come in.
    """

    generation: int
    rank: int
    members: tuple[int, ...]
    host: str
    port: int
    settled: tuple[Settlement, ...] = ()
    admitted: bool = False


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def byte(self) -> int:
        return self._raw(1)[0]

    def number(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise MessageError("a number of more than 64 bits")

    def text(self) -> str:
        length = self.number()
        if length > _MOST_TEXT:
            raise MessageError(f"a text of {length} bytes")
        # A name need not be text.
        return bytes(self._raw(length)).decode(errors="surrogateescape")

    def end(self) -> None:
        if self._rest:
            raise MessageError(f"{len(self._rest)} more bytes than expected")

    def _raw(self, length: int) -> memoryview:
        taken, self._rest = self._rest[:length], self._rest[length:]
        if len(taken) < length:
            raise MessageError("a message that ends too early")
        return taken


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _text(value: str) -> bytes:
    data = value.encode(errors="surrogateescape")[:_MOST_TEXT]
    return _number(len(data)) + data


def decode_report(data: bytes) -> MemberReport:
    """Returns the report in a message.

    Raises:
        MessageError: If it is none.
    """
    reader = _Reader(data)
    if reader.byte() != _REPORT:
        raise MessageError("a message that is no report")
    try:
        stand = Stand(reader.byte())
    except ValueError as error:
        raise MessageError(f"a report with {error}") from None
    generation, host = reader.number(), reader.text()
    port, cause = reader.number(), reader.text()
    steps = {}
    for _ in range(reader.number()):
        group, settled, flags = reader.text(), reader.number(), reader.byte()
        steps[group] = StepReport(
            settled, bool(flags & _BEGUN), bool(flags & _WHOLE)
        )
    reader.end()
    return MemberReport(generation, host, port, cause, steps, stand)


def encode_report(report: MemberReport) -> bytes:
    """Returns the message of a report."""
    steps = [
        _text(group)
        + _number(step.settled)
        + bytes([_BEGUN * step.begun | _WHOLE * step.whole])
        for group, step in report.steps.items()
    ]
    head = (
        bytes([_REPORT, report.stand]),
        _number(report.generation),
        _text(report.host),
        _number(report.port),
        _text(report.cause),
        _number(len(steps)),
    )
    return b"".join((*head, *steps))


def encode_next(following: NextGeneration) -> bytes:
    """Returns the message that a rank goes on in another generation."""
    settled = [
        _text(each.group) + _number(each.step) + bytes([each.outcome])
        for each in following.settled
    ]
    head = (
        bytes([_NEXT]),
        _number(following.generation),
        bytes([following.admitted]),
        _number(following.rank),
        _number(len(following.members)),
        *map(_number, following.members),
        _text(following.host),
        _number(following.port),
        _number(len(settled)),
    )
    return b"".join((*head, *settled))


def encode_waiting(processes: int) -> bytes:
    """Returns the message of how many processes wait to come in."""
    return bytes([_WAITING]) + _number(processes)


def encode_over(generation: int, reason: str) -> bytes:
    """Returns the message that a generation is over, and why.

    Members of it that cannot see that for themselves leave it then.
    """
    return bytes([_OVER]) + _number(generation) + _text(reason)


def encode_end(reason: str) -> bytes:
    """Returns the message that there is no further generation."""
    return bytes([_END]) + _text(reason)
