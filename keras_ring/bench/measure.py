"""Runs and times a case, in the same way for every system."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_ring.bench import contents, usage
from keras_ring.bench.case import Case
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.record import Record
from keras_ring.bench.system import Prepared, System

_MIN_ITERATIONS = 5
_MAX_ITERATIONS = 200
_PHASE = "_ns"
_ONE_HOST = HostLink()
_CONTROL = ("control_bytes_sent", "control_bytes_received")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The duration of the measurement of a case.

    Args:
        iterations: Integer, the number of measured runs. If `None`, as many as
            fit into `seconds`, from 5 to 200.
        seconds: Float, see `iterations`.
        warmup: Integer, the number of runs before the measurement.
    """

    iterations: int | None = None
    seconds: float = 1.0
    warmup: int = 5


class Meter:
    """Measures cases of one system in this process, one after another.

    Args:
        system: The system to measure, whose job has begun.
        budget: The duration of the measurement of each case.
        link: The link between the hosts of the job. Defaults to one host.
    """

    def __init__(
        self, system: System, budget: Budget, link: HostLink = _ONE_HOST
    ) -> None:
        self._system = system
        self._budget = budget
        self._link = link
        self._memory = self._most_memory = usage.memory_bytes()

    def measure(self, case: Case) -> Record:
        """Runs a case on all ranks; each of them must call it.

        The first and the last results are checked. In between, results are not
        read, so that caches stay as the collective has left them.

        Raises:
            WrongResultError: If a result is wrong.
        """
        prepared = self._system.prepare(case)
        contents.check(case, self._loop(prepared, 1).results, prepared.expected)
        # The results are not kept: the next loop needs their memory.
        warm_times = self._loop(prepared, max(1, self._budget.warmup)).times
        loop = self._loop(prepared, self._num_iterations(warm_times))
        contents.check(case, loop.results, prepared.expected)
        return self._record(case, loop)

    def _num_iterations(self, times: Sequence[float]) -> int:
        if self._budget.iterations is not None:
            return self._budget.iterations
        # Computed from the times of all ranks, so that the number is the same.
        slowest = self._system.gather(np.array(times)).max(axis=0)
        fitting = int(self._budget.seconds / float(np.median(slowest)))
        return min(_MAX_ITERATIONS, max(_MIN_ITERATIONS, fitting))

    def _loop(self, prepared: Prepared, iterations: int) -> _Loop:
        loop = _Loop(times=[], cpu_times=[], counted={}, results=())
        with _no_garbage_collection():
            for _ in range(iterations):
                # Results are freed at once, as gradients of a training step.
                loop.results = ()
                prepared.reset()
                self._system.barrier()
                before = self._system.counters()
                cpu_began = time.process_time()
                began = time.perf_counter()
                loop.results = prepared.run()
                loop.times.append(time.perf_counter() - began)
                loop.cpu_times.append(time.process_time() - cpu_began)
                for key, value in self._system.counters().items():
                    counted = loop.counted.get(key, 0)
                    loop.counted[key] = counted + value - before[key]
        return loop

    def _record(self, case: Case, loop: _Loop) -> Record:
        iterations = len(loop.times)
        keys = sorted(loop.counted)
        # Measured while the results are still in memory.
        self._most_memory = max(self._most_memory, usage.memory_bytes())
        extra = self._most_memory - self._memory
        counted = [loop.counted[key] / iterations for key in keys]
        own = [*loop.times, *loop.cpu_times, extra, *counted]
        ranks = self._system.gather(np.array(own, dtype=np.float64))
        times, cpu_times = (
            ranks[:, : 2 * iterations]
            .reshape(self._system.size, 2, iterations)
            .swapaxes(0, 1)
        )
        rest = ranks[:, 2 * iterations :]
        by_key = dict(zip(keys, rest[:, 1:].T, strict=True))
        control = [by_key[key].max() for key in _CONTROL if key in by_key]
        return Record(
            system=self._system.name,
            version=self._system.version,
            size=self._system.size,
            case=case.name,
            num_bytes=case.num_bytes,
            num_tensors=len(case.shapes),
            dtype=case.dtype,
            op=case.op,
            wire_bytes=case.wire_bytes,
            link=self._link,
            times_us=tuple((times.max(axis=0) * 1e6).round(3).tolist()),
            cpu_us=float(cpu_times.sum() / iterations * 1e6),
            memory_extra_bytes=int(rest[:, 0].max()),
            control_bytes=float(max(control)) if control else None,
            phases_ns={
                key.removesuffix(_PHASE): float(values.mean())
                for key, values in by_key.items()
                if key.endswith(_PHASE)
            },
        )


@dataclass
class _Loop:
    times: list[float]
    cpu_times: list[float]
    counted: dict[str, int]
    results: Sequence[npt.ArrayLike]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables garbage collection, which would delay single ranks."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
