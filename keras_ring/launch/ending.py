"""The signals that end the ranks of a job, and their times."""

import math
import signal
import time
from collections.abc import Callable

from keras_ring.launch.patience import Patience
from keras_ring.protocol import time_limits
from keras_ring.protocol.time_limits import LIMITS, seconds_text

# Seconds between two SIGKILLs, for ranks that have not ended after the first.
_KILL_PATIENCE = 5.0


class Ending:
    """The signals to the ranks after a failure or a request of the user.

    Args:
        patience: `Patience`, the time limits of the launcher.
        send: Function that sends a signal to all ranks that still run.
    """

    def __init__(self, patience: Patience, send: Callable[[int], None]) -> None:
        self._patience = patience
        self._send_signal = send
        # Times and signals to send, by `time.monotonic`.
        self._schedule: list[tuple[float, int]] = []
        self.begun = False
        """Whether a signal has been sent."""
        self.stop_signal: int | None = None
        """The signal by which the user ended the job, or `None`."""
        self.killed = ""
        """The reason why ranks were killed, and the option for more time.

        Empty if no rank was killed.
        """
        self._why = ""

    @property
    def deadline(self) -> float | None:
        """The time of the next signal, by `time.monotonic`, or `None`."""
        return self._schedule[0][0] if self._schedule else None

    def on_failure(self) -> None:
        """Ends the other ranks after some time, because a rank has failed."""
        if self._schedule or self.begun:
            return
        term = time.monotonic() + self._patience.failure_wait
        self._schedule_end(term, self._patience.failure_grace)

    def on_loss(self) -> None:
        """Ends the ranks of other hosts at once, because a host is lost."""
        now = time.monotonic()
        if not self.begun:
            self._schedule_end(now, self._patience.loss_grace)
            return
        kill = now + self._patience.loss_grace
        if not self._schedule or kill < self._schedule[-1][0]:
            self._schedule_kill(
                kill,
                self._patience.loss_grace,
                "the loss of a host",
                time_limits.FAILURE_GRACE,
            )

    def on_request(self, signum: int) -> None:
        """Ends the job, because the launcher got a signal from the user."""
        if self.stop_signal is None and not self._schedule and not self.begun:
            self.stop(signum, forward=signum)
            return
        # The second request, or the job is already ending: kill at once.
        self._schedule = [(time.monotonic(), signal.SIGKILL)]
        self._why = f"at {signal.Signals(signum).name} to keras-ring"

    def stop(self, signum: int, *, forward: int) -> None:
        """Ends the job because of `signum`; the ranks get `forward`."""
        self.stop_signal = signum
        self._send(forward)
        self._schedule = []
        self._schedule_kill(
            time.monotonic() + self._patience.grace_period,
            self._patience.grace_period,
            signal.Signals(forward).name,
            time_limits.GRACE_PERIOD,
        )

    def _schedule_end(self, term: float, grace: float) -> None:
        """Schedules SIGTERM, and SIGKILL for ranks that do not end."""
        self._schedule = [(term, signal.SIGTERM)] if term < math.inf else []
        self._schedule_kill(
            term + grace, grace, "SIGTERM", time_limits.FAILURE_GRACE
        )

    def _schedule_kill(
        self, when: float, grace: float, after: str, name: str
    ) -> None:
        terms = [each for each in self._schedule if each[1] != signal.SIGKILL]
        self._schedule = terms
        if when < math.inf:
            self._schedule.append((when, signal.SIGKILL))
        self._why = (
            f"{seconds_text(grace)} s after {after}"
            f" ({LIMITS[name].option} gives them more time)"
        )

    def follow(self) -> None:
        """Sends the signals that are due."""
        now = time.monotonic()
        while self._schedule and self._schedule[0][0] <= now:
            _, signum = self._schedule.pop(0)
            if signum == signal.SIGKILL:
                self.killed = self._why
            self._send(signum)
            if signum == signal.SIGKILL:
                self._schedule = [(now + _KILL_PATIENCE, signal.SIGKILL)]

    def finish(self) -> None:
        """Cancels all signals, because all ranks have ended."""
        self._schedule = []

    def _send(self, signum: int) -> None:
        self.begun = True
        self._send_signal(signum)
