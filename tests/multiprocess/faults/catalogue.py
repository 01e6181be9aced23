"""Which faults there are, when they happen, and what must come of them."""

import dataclasses
import random
from collections.abc import Iterator

KILLED = ("SIGKILL", "SIGSEGV", "exit", "oom")
CUT_OFF = ("SIGSTOP", "closed network", "half-open")
FAULTS = (*KILLED, *CUT_OFF, "exception")
# Of a rank that is merely slow: nobody may be lost.
SLOW = ("pause", "busy")
MOMENTS = ("init", "negotiation", "collective", "callback", "shutdown")
MODES = ("eager", "graph", "xla", "session")
COLLECTIVES = ("shm", "ring")

HEARTBEAT_TIMEOUT = 3.0
START_TIMEOUT = 4.0
# Seconds to the error, beyond what the above take: on an idle machine it is a
# tenth of it.
ALLOWANCE = 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    """One fault of one rank of one job."""

    fault: str
    moment: str
    mode: str
    collective: str
    size: int
    victim: int
    # Seconds between the moment and the fault.
    delay: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.fault}, {self.moment}, {self.mode}, {self.collective}, "
            f"rank {self.victim} of {self.size}, after {self.delay:.3f} s"
        )

    @property
    def limit(self) -> float:
        """Returns how many seconds after the fault all survivors know."""
        if self.moment == "init":
            # Who has not come is not known to be dead.
            return START_TIMEOUT + ALLOWANCE
        if self.fault in ("SIGSTOP", "half-open"):
            return HEARTBEAT_TIMEOUT * 4 / 3 + ALLOWANCE
        return ALLOWANCE

    @property
    def hosts(self) -> list[str] | None:
        """Returns the identity of each rank's host; None for the real one."""
        if self.fault != "half-open":
            return None
        # Else the links within the host are memory, which nobody can cut.
        return [f"host{rank}" for rank in range(self.size)]


def _combinations() -> Iterator[tuple[str, str, str, str]]:
    for fault in (*FAULTS, *SLOW):
        for moment in MOMENTS:
            if fault in SLOW and moment not in ("negotiation", "collective"):
                continue
            for mode in MODES:
                # Before and after there is no mode.
                if moment in ("init", "shutdown") and mode != "eager":
                    continue
                for collective in COLLECTIVES:
                    if fault == "half-open" and collective == "shm":
                        continue
                    yield fault, moment, mode, collective


def _places(largest: int) -> list[tuple[int, int]]:
    return [
        (size, victim)
        for size in range(2, largest + 1)
        for victim in range(size)
    ]


def cases(seed: int, every_rank: bool = False, largest: int = 8) -> list[Case]:
    """Returns the cases of the table, in random order.

    Args:
        seed: Of the order, of who is hit, and exactly when.
        every_rank: Each combination with every rank of every size from 2 to 8,
            not with one of them drawn at random.
        largest: The most ranks of a job.
    """
    draw = random.Random(seed)
    found = []
    for combination in _combinations():
        # Keras takes a while to start.
        slow = combination[1] == "callback" and not every_rank
        places = _places(min(largest, 4) if slow else largest)
        for size, victim in places if every_rank else [draw.choice(places)]:
            delay = draw.uniform(0.0, 0.05)
            found.append(Case(*combination, size, victim, delay))
    draw.shuffle(found)
    return found
