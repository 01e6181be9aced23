"""Computes all results of a report from a timeline, once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_ring.observe import judge
from keras_ring.observe.report.activity import Activity, measure
from keras_ring.observe.report.buckets import Fusion, find_fusion
from keras_ring.observe.report.lateness import Lateness, find_lateness
from keras_ring.observe.report.steps import Steps, Times, find_steps
from keras_ring.observe.report.waits import Waits, find_waits
from keras_ring.observe.timeline.model import Timeline


@dataclass(frozen=True)
class Analysis:
    """A timeline and the results computed from it."""

    timeline: Timeline
    steps: Steps
    activity: Activity
    lateness: Lateness
    waits: Waits
    fusion: Fusion | None

    @property
    def step_times(self) -> Times:
        """Durations of the usual steps in ns, each the median of the ranks."""
        durations = self.activity.duration[:, self.steps.usual]
        times: Times = np.nanmedian(durations, axis=0)
        return times

    @property
    def step_time(self) -> float:
        """Median duration of a usual step in ns; 0 if there is none."""
        times = self.step_times
        return float(np.median(times)) if len(times) else 0.0

    @property
    def total(self) -> float:
        """Total duration of the usual steps in ns."""
        return float(self.step_times.sum())

    def usual(self, times: Times) -> Times:
        """Returns the part of times by rank and step in the usual steps."""
        chosen: Times = times[..., self.steps.usual]
        return chosen

    @property
    def communication_share(self) -> float:
        """Share of the time of steps in which buckets ran."""
        return self._share(self.activity.communication)

    @property
    def hidden_share(self) -> float:
        """Share of the communication that computation hides."""
        communication = np.nansum(self.usual(self.activity.communication))
        hidden = np.nansum(self.usual(self.activity.hidden))
        return judge.hidden_share(float(hidden), float(communication))

    def _share(self, times: Times) -> float:
        duration = np.nansum(self.usual(self.activity.duration))
        return float(np.nansum(self.usual(times)) / duration) if duration else 0


def analyse(timeline: Timeline) -> Analysis:
    """Returns the analysis of a timeline."""
    steps = find_steps(timeline)
    activity = measure(timeline, steps)
    lateness = find_lateness(timeline, steps, activity)
    return Analysis(
        timeline,
        steps,
        activity,
        lateness,
        find_waits(timeline, steps, activity, lateness),
        find_fusion(timeline, steps),
    )
