"""When the ranks of a job are told to end, and how insistently."""

import signal
import time
from collections.abc import Callable

from keras_ring.launcher.plan import LaunchPlan

# After the last SIGKILL, a rank that is still there cannot be killed.
_KILL_PATIENCE = 5.0
# Seconds between SIGTERM and SIGKILL where a host is lost: that it is took
# some seconds to be known.
_LOSS_GRACE = 1.0


class Ending:
    """The signals that ranks get once one has failed, or the user asks.

    Args:
        plan: Of the job, for its grace periods.
        send: Sends a signal to all ranks that are still running.
    """

    def __init__(self, plan: LaunchPlan, send: Callable[[int], None]) -> None:
        self._plan = plan
        self._send_signal = send
        # When to send which signal.
        self._schedule: list[tuple[float, int]] = []
        self.begun = False
        """Whether a signal has been sent."""
        self.stop_signal: int | None = None
        """The signal by which the user ended the job, if it was so."""

    @property
    def deadline(self) -> float | None:
        """When `follow` has something to do, by `time.monotonic`."""
        return self._schedule[0][0] if self._schedule else None

    def on_failure(self) -> None:
        """A rank has failed: the others get some time, and then end."""
        if self._schedule or self.begun:
            return
        now = time.monotonic()
        term = now + self._plan.failure_grace
        kill = term + self._plan.term_grace
        self._schedule = [(term, signal.SIGTERM), (kill, signal.SIGKILL)]

    def on_loss(self) -> None:
        """A host is lost: the ranks of the others end without delay."""
        now = time.monotonic()
        kill = now + min(self._plan.term_grace, _LOSS_GRACE)
        if self.begun:
            if self._schedule:
                kill = min(kill, self._schedule[-1][0])
            self._schedule = [(kill, signal.SIGKILL)]
            return
        self._schedule = [(now, signal.SIGTERM), (kill, signal.SIGKILL)]

    def on_request(self, signum: int) -> None:
        """The user asks for the end, by a signal to the launcher."""
        if self.stop_signal is None and not self._schedule:
            self.stop(signum, forward=signum)
        else:
            # Asked twice, or already ending: no more patience.
            self._schedule = [(time.monotonic(), signal.SIGKILL)]

    def stop(self, signum: int, *, forward: int) -> None:
        """Ends the job because of `signum`; the ranks get `forward`."""
        self.stop_signal = signum
        self._send(forward)
        kill = time.monotonic() + self._plan.signal_grace
        self._schedule = [(kill, signal.SIGKILL)]

    def follow(self) -> None:
        """Sends what is due."""
        now = time.monotonic()
        while self._schedule and self._schedule[0][0] <= now:
            _, signum = self._schedule.pop(0)
            self._send(signum)
            if signum == signal.SIGKILL:
                self._schedule = [(now + _KILL_PATIENCE, signal.SIGKILL)]

    def finish(self) -> None:
        """All ranks have ended: nothing is left to be sent."""
        self._schedule = []

    def _send(self, signum: int) -> None:
        self.begun = True
        self._send_signal(signum)
