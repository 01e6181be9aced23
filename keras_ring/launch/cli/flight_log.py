"""Reads the records of the flight recorders of a job's ranks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMAT = 1
_WAITING, _RUNNING, _DONE, _FAILED = "waiting", "running", "done", "failed"
_STATES = (_WAITING, _RUNNING, _DONE, _FAILED)


class FlightLogError(ValueError):
    """Raised if a file is not the flight log of a rank."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One collective operation as one rank has seen it.

    Args:
        number: Integer, the number among the rank's operations, from 1.
        name: String, the name of the tensor.
        kind: String, such as `"allreduce"`.
        state: String, `"waiting"` for other ranks, `"running"`, `"done"` or
            `"failed"`.
        decision: Integer, the number of the common decision to run it. `None`
            before the decision.
        last_rank: Integer, the rank that its bucket waited for, or `None`.
        late: Float, the seconds by which that rank was late.
        submitted: Float, the time at which the rank asked for it, in seconds
            since the epoch.
        ended: Float, the time at which it was done or failed. `None` before.
        error: String, the reason why it failed.
    """

    number: int
    name: str
    kind: str
    state: str
    decision: int | None
    last_rank: int | None = None
    late: float = 0.0
    submitted: float
    ended: float | None
    error: str

    @property
    def label(self) -> str:
        """The kind and the name, as messages show them."""
        return f"{self.kind} {self.name!r}"

    @property
    def is_open(self) -> bool:
        """Returns whether the rank still waited for its end."""
        return self.state in (_WAITING, _RUNNING)

    @property
    def is_waiting(self) -> bool:
        """Returns whether it waited for ranks that had not asked for it."""
        return self.state == _WAITING


@dataclass(frozen=True, kw_only=True)
class FlightLog:
    """The last operations of one rank.

    Args:
        rank: Integer, the rank.
        members: Tuple of integers, the ranks of the process set.
        process_set: Integer, the number of the process set; 0 for the whole
            job.
        host: String, the name of the rank's host.
        pid: Integer, its process id.
        written: Float, the time at which the log was written, in seconds since
            the epoch.
        reason: String, the reason why the log was written.
        operations: Tuple of `Operation`s, the oldest first.
    """

    rank: int
    members: tuple[int, ...]
    process_set: int
    host: str
    pid: int
    written: float
    reason: str
    operations: tuple[Operation, ...]

    @property
    def last(self) -> Operation | None:
        """The last operation that the rank asked for, or `None`."""
        return self.operations[-1] if self.operations else None


def read_flight_log(path: Path) -> FlightLog:
    """Reads one flight log.

    Raises:
        FlightLogError: If the file cannot be read, is not a flight log, or has
            the format of another version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise FlightLogError(f"{path}: {error}") from error
    try:
        if data["format"] != _FORMAT:
            raise FlightLogError(
                f"{path}: format {data['format']}, expected {_FORMAT}; use the"
                " keras-ring that the job ran with"
            )
        return FlightLog(
            rank=int(data["rank"]),
            members=tuple(map(int, data["members"])),
            process_set=int(data["process_set"]),
            host=str(data["host"]),
            pid=int(data["pid"]),
            written=float(data["written"]),
            reason=str(data["reason"]),
            operations=tuple(map(_operation, data["records"])),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FlightLogError(
            f"{path}: not a flight log of keras_ring ({error!r})"
        ) from error
    except ValueError as error:
        if isinstance(error, FlightLogError):
            raise
        raise FlightLogError(f"{path}: {error}") from error


def _operation(record: dict[str, Any]) -> Operation:
    state = str(record["state"])
    if state not in _STATES:
        raise ValueError(f"unknown state {state!r}")
    decision, ended = record["decision"], record["ended"]
    last_rank = record.get("last_rank")
    return Operation(
        number=int(record["number"]),
        name=str(record["name"]),
        kind=str(record["kind"]),
        state=state,
        decision=None if decision is None else int(decision),
        last_rank=None if last_rank is None else int(last_rank),
        late=float(record.get("late", 0.0)),
        submitted=float(record["submitted"]),
        ended=None if ended is None else float(ended),
        error=str(record.get("error", "")),
    )


def read_flight_logs(directory: Path) -> list[FlightLog]:
    """Reads the logs of a directory, ordered by process set and rank.

    If several processes have been the same rank, as in two jobs or in two
    generations of one job, only the log that was written last is returned.

    Raises:
        FlightLogError: If there is no log, or one cannot be read.
    """
    paths = sorted(directory.glob("flight.*.json"))
    if not paths:
        raise FlightLogError(
            f"{directory}: no flight logs (flight.RANK.PID.json) there"
        )
    logs = sorted(map(read_flight_log, paths), key=lambda log: log.written)
    last = {(log.process_set, log.rank): log for log in logs}
    return [last[key] for key in sorted(last)]
