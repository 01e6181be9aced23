"""From what the processes measured to the figures of weak scaling."""

import statistics
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is known of a model's scaling.

    Args:
        model: Its name.
        gradient_bytes: Bytes of its gradients.
        independent: For each round, the images per second of all independent
            processes together in each epoch.
        distributed: The same of the job.
        independent_step: Median seconds of a step.
        distributed_step: The same of the job.
        core_share: What the independent processes had of their cores, the
            median; nearly 1, if nothing else ran there.
        busy_step: Median seconds per step in which communication was at work;
            `None` if nothing counted it.
    """

    model: str
    gradient_bytes: int
    independent: list[list[float]]
    distributed: list[list[float]]
    independent_step: float
    distributed_step: float
    core_share: float
    busy_step: float | None

    @property
    def efficiency(self):
        """What the job makes of what its processes could do alone.

        The median of the rounds' ratios, for the machine may be faster in one
        round than in another.
        """
        return statistics.median(
            statistics.median(own) / statistics.median(alone)
            for own, alone in zip(
                self.distributed, self.independent, strict=True
            )
        )

    @property
    def hidden(self):
        """The share of communication that made no step longer.

        1 - (distributed step - independent step) / busy, from 0 to 1: what a
        step takes longer than without communication was not hidden behind its
        computation. `None` without counters.
        """
        if not self.busy_step:
            return None
        extra = self.distributed_step - self.independent_step
        return min(1.0, max(0.0, 1.0 - extra / self.busy_step))


def make_figures(task, independent, distributed):
    """Returns the `Figures` of one model.

    Args:
        task: A `worker.Task` of the model.
        independent: For each round, the `worker.Result` of each process.
        distributed: The same of the job.
    """
    return Figures(
        model=task.model,
        gradient_bytes=independent[0][0].gradient_bytes,
        independent=_images_per_second(task, independent),
        distributed=_images_per_second(task, distributed),
        independent_step=_seconds_per_step(task, independent),
        distributed_step=_seconds_per_step(task, distributed),
        core_share=_core_share(independent),
        busy_step=_busy_per_step(task, distributed),
    )


def median_and_spread(rounds):
    """Returns the median of all samples, and how far they spread.

    That is half the distance of the 10th and 90th percentile, relative.
    """
    low, median, high = np.percentile(np.concatenate(rounds), [10, 50, 90])
    return float(median), float((high - low) / 2 / median)


def _epochs(results):
    """For each epoch of a round, the seconds of its processes."""
    return list(zip(*(result.seconds for result in results), strict=True))


def _images_per_second(task, rounds):
    images = task.steps * task.batch
    return [
        [sum(images / s for s in seconds) for seconds in _epochs(results)]
        for results in rounds
    ]


def _seconds_per_step(task, rounds):
    return statistics.median(
        statistics.mean(seconds) / task.steps
        for results in rounds
        for seconds in _epochs(results)
    )


def _core_share(rounds):
    return statistics.median(
        cpu / wall
        for results in rounds
        for result in results
        for cpu, wall in zip(result.cpu_seconds, result.seconds, strict=True)
    )


def _busy_per_step(task, rounds):
    results = [result for results in rounds for result in results]
    if any(result.busy_ns is None for result in results):
        return None
    return statistics.median(
        busy / 1e9 / task.steps for result in results for busy in result.busy_ns
    )
