"""The thread on rank 0 that tunes the job of this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keras_ring.core import notices
from keras_ring.core.autotune.log_file import TuningLog
from keras_ring.core.autotune.proposals import OptunaProposals
from keras_ring.core.autotune.samples import Reading, Sampler
from keras_ring.core.autotune.search_space import (
    Knob,
    Setting,
    defaults,
    knobs_of,
    text_of,
)
from keras_ring.core.autotune.tuning import Trial, Tuning, tuning
from keras_ring.core.autotune.tuning_cache import (
    KeptSettings,
    Kind,
    directory_of,
)

_PREFIX = "KERAS_RING_AUTOTUNE"
# Seconds between two readings of the counters. One takes microseconds.
_PERIOD = 0.02
# Steps that do not count after a change: the coordinator needs three equal
# steps to make a new plan, and these begin after the current step.
SETTLING = 6
# Steps after which it is known that the job trains, and what.
_STEPS_TO_KNOW = 3


@dataclass(frozen=True)
class TunedJob:
    """The job that a worker tunes.

    Args:
        core: The runtime.
        knobs: The knobs that are tuned.
        tuning: Generator of the settings to measure.
        log: File that samples are written to.
        kept: Cache that the outcome is written to.
        cluster: See `Kind`.
        steps_per_sample: See `Sampler`.
    """

    core: Any
    knobs: Sequence[Knob]
    tuning: Tuning
    log: TuningLog
    kept: KeptSettings
    cluster: Mapping[str, str]
    steps_per_sample: int


class Worker:
    """Tunes a job in small steps, one for each call of `tick`.

    Args:
        job: The job that it tunes.
    """

    def __init__(self, job: TunedJob) -> None:
        self._job = job
        self._sampler = Sampler(job.steps_per_sample)
        self._default = defaults(job.knobs)
        self._now = dict(self._default)  # what the job has
        self._first: Reading | None = None
        self._kind: Kind | None = None
        self._trial: Trial | None = None
        self.done = False

    def tick(self) -> None:
        """Reads the counters of the job and takes the next step, if any."""
        reading = self._read()
        if reading is None or self.done:
            return
        if self._kind is None:
            self._get_to_know(reading)
        elif (score := self._sampler.add(reading)) is not None:
            self._go_on(score)

    def restore(self) -> None:
        """Restores the default setting of the job."""
        self._apply(self._default)

    def close(self) -> None:
        """Closes the log."""
        self._job.log.close()

    def _read(self) -> Reading | None:
        """Returns the counters if they do not change while they are read."""
        readings = []
        for _ in range(2):
            readings.append(Reading.of(self._job.core.metrics()))
        return readings[0] if readings[0] == readings[1] else None

    def _get_to_know(self, reading: Reading) -> None:
        if self._first is None:
            self._first = reading
        steps = reading.steps - self._first.steps
        if steps < _STEPS_TO_KNOW:
            return
        self._kind = Kind(
            cluster=self._job.cluster,
            tensors=(reading.tensors - self._first.tensors) // steps,
            num_bytes=(reading.num_bytes - self._first.num_bytes) // steps,
        )
        try:
            kept = self._job.kept.find(self._kind, self._job.knobs)
        except ValueError as error:
            notices.warn(f"autotune ignores a file: {error}")
            kept = None
        if kept is not None:
            self._apply(kept)
            self._end("kept from an earlier job of this kind", kept)
            return
        self._measure(next(self._job.tuning))

    def _go_on(self, score: float) -> None:
        trial = self._trial
        if trial is not None:
            self._job.log.sample(time.time(), trial.phase, trial.setting, score)
        try:
            self._measure(self._job.tuning.send(score))
        except StopIteration as stop:
            outcome = stop.value
            self._apply(outcome.setting)
            what = f"{100 * outcome.gain:.1f} % faster than the default"
            if outcome.setting == self._default:
                what = "the default, than which nothing is proven faster"
            self._end(what, outcome.setting)
            self._keep(outcome.setting, outcome.gain)

    def _measure(self, trial: Trial) -> None:
        changes = trial.setting != self._now
        self._trial = trial
        self._apply(trial.setting)
        self._sampler.restart(SETTLING if changes else 0)

    def _apply(self, setting: Setting) -> None:
        for name, value in setting.items():
            if self._now[name] != value:
                self._job.core.tune(name, value)
                self._now[name] = value

    def _end(self, what: str, setting: Setting) -> None:
        self.done = True
        self._job.log.end(what, setting)
        notices.warn(
            f"autotune is done; from now on {text_of(setting)} ({what})."
        )

    def _keep(self, setting: Setting, gain: float) -> None:
        if self._kind is None:
            return
        try:
            self._job.kept.keep(self._kind, setting, gain)
        except OSError as error:
            notices.warn(f"autotune cannot keep what it has found: {error}")


class Autotune:
    """A thread that calls a worker, and never disturbs the training.

    Args:
        worker: The worker, whose `tick` it calls.
        core: The runtime.
    """

    def __init__(self, worker: Worker, core: Any) -> None:
        self._worker = worker
        self._core = core
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="keras_ring-autotune", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the job keeps its current setting."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._worker.done and not self._stop.wait(_PERIOD):
                self._worker.tick()
        except Exception as error:
            self._give_up(error)
        finally:
            self._worker.close()

    def _give_up(self, error: Exception) -> None:
        over = not self._core.is_initialized() or self._core.job_error()
        if over or self._stop.is_set():
            return  # a job that has ended is not tuned
        notices.warn(
            "autotune has failed and leaves the job as it was: "
            f"{type(error).__name__}: {error}"
        )
        try:
            self._worker.restore()
        except Exception as second:
            notices.warn(f"not even that: {second}")


def start(core: Any) -> Autotune | None:
    """Begins to tune the job of this process, if it is to be tuned.

    Args:
        core: The runtime, initialized.

    Returns:
        The thread, or `None` on ranks other than 0 and if tuning is off.

    Raises:
        ConfigurationError: If the optimiser is not installed, or the log
            cannot be written.
    """
    topology = core.topology()
    asked = core.option(_PREFIX) == "1"
    if not asked or topology.rank != 0 or topology.size == 1:
        return None
    knobs = knobs_of(core.tunables(), os.environ)
    if not knobs:
        return None

    def option(name: str) -> str:
        return str(core.option(f"{_PREFIX}_{name}"))

    job = TunedJob(
        core=core,
        knobs=knobs,
        tuning=tuning(
            defaults(knobs),
            OptunaProposals(knobs),
            warmup=int(option("WARMUP_SAMPLES")),
            max_samples=int(option("BAYES_OPT_MAX_SAMPLES")),
        ),
        log=TuningLog(option("LOG"), knobs),
        kept=KeptSettings(directory_of(option("CACHE"), os.environ)),
        cluster=_cluster(core),
        steps_per_sample=int(option("STEPS_PER_SAMPLE")),
    )
    return Autotune(Worker(job), core)


def _cluster(core: Any) -> dict[str, str]:
    """Returns the ranks and how they communicate."""
    topology = core.topology()
    return {
        "ranks": str(topology.size),
        "ranks of this host": str(topology.local_size),
        "hosts": str(topology.cross_size),
        "homogeneous": str(topology.homogeneous),
        "collectives": core.explain().partition("\n")[0],
        "processor": str(core.cpu_level),
        "tls": core.option("KERAS_RING_TLS"),
    }
