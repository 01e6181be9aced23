"""Status pages as Prometheus metrics.

Names and units follow Prometheus' conventions: seconds and bytes, `_total` for
counters, and points in time in seconds since the epoch. This module needs
prometheus_client, so import it only to serve metrics.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from keras_ring.observe.pages import Page
from keras_ring.observe.words import ACTIVITIES

_PREFIX = "keras_ring_"
_LABELS = ("job", "rank", "host")
# Entries of kr.metrics() that are current values, not totals.
_GAUGES = frozenset(
    ("pending", "epoch", "arena_bytes_in_use", "arena_bytes_kept")
)
# Entries that are times of a host's steady clock.
_MOMENTS = frozenset(
    (
        "submitted_ns",
        "done_ns",
        "submitted_execute_ns",
        "began_ns",
        "activity_ns",
    )
)
_ACTIVITY = "activity"
# Units of gauges that are a part of their names.
_GAUGE_UNITS = {"pending": "_tensors"}

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class _Series:
    """The Prometheus form of a counter of `kr.metrics()`.

    Args:
        name: Name of the metric, without `_total`.
        kind: `"counter"`, `"gauge"` or `"moment"`.
        scale: Number by which values are multiplied.
    """

    name: str
    kind: str
    scale: float = 1.0


def series_of(name: str, unit: str) -> _Series:
    """Returns the Prometheus form of a counter of `kr.metrics()`.

    Args:
        name: Name of the counter.
        unit: Unit of the counter.
    """
    if name in _MOMENTS:
        stem = name.removesuffix("_ns")
        return _Series(f"{_PREFIX}{stem}_timestamp_seconds", "moment")
    kind = "gauge" if name in _GAUGES else "counter"
    words = name.split("_")
    if unit == "ns":
        stem = name.removesuffix("_ns")
        return _Series(f"{_PREFIX}{stem}_seconds", kind, 1e-9)
    if unit == "bytes":
        stem = "_".join(word for word in words if word != "bytes")
        return _Series(f"{_PREFIX}{stem}_bytes", kind)
    return _Series(f"{_PREFIX}{name}{_GAUGE_UNITS.get(name, '')}", kind)


def families(pages: Sequence[Page]) -> list[Family]:
    """Returns the metrics of a job.

    Args:
        pages: The current pages of its ranks.
    """
    ranks = _Families()
    for page in pages:
        labels = (page.job, str(page.rank), page.host)
        _add_process(ranks, page, labels)
        for name, value in page.counters.items():
            if name == _ACTIVITY:
                continue
            series = series_of(name, page.units.get(name, ""))
            family = ranks.of(series, f"{name} of kr.metrics().")
            if series.kind != "moment":
                family.add_metric(labels, value * series.scale)
            elif value:
                family.add_metric(labels, page.unix_ns(value) * 1e-9)
    return [*ranks.all(), *_of_job(pages), *_activities(pages)]


def _add_process(
    ranks: "_Families", page: Page, labels: tuple[str, ...]
) -> None:
    values = {
        ("running", "Whether the process of the rank lives."): page.alive,
        (
            "resident_memory_bytes",
            "Memory that the process of the rank uses.",
        ): page.memory,
        (
            "start_time_seconds",
            "When the rank joined the job, since the epoch.",
        ): page.started_unix_ns * 1e-9,
    }
    for (name, text), value in values.items():
        family = ranks.of(_Series(_PREFIX + name, "gauge"), text)
        family.add_metric(labels, float(value))


class _Families:
    """Metrics by name, in the order of the first call of `of` for each."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}

    def of(self, series: _Series, text: str) -> Any:
        if series.name not in self._families:
            make: Any = (
                CounterMetricFamily
                if series.kind == "counter"
                else GaugeMetricFamily
            )
            self._families[series.name] = make(
                series.name, text, labels=_LABELS
            )
        return self._families[series.name]

    def all(self) -> Iterable[Family]:
        return self._families.values()


def _of_job(pages: Sequence[Page]) -> list[Family]:
    family = GaugeMetricFamily(
        f"{_PREFIX}job_ranks", "Number of ranks of the job.", labels=("job",)
    )
    sizes: Mapping[str, int] = {page.job: page.size for page in pages}
    for job, size in sizes.items():
        family.add_metric((job,), size)
    return [family]


def _activities(pages: Sequence[Page]) -> list[Family]:
    family = GaugeMetricFamily(
        f"{_PREFIX}{_ACTIVITY}",
        "What the program of the rank does: 1 for one of these, 0 for others.",
        labels=(*_LABELS, _ACTIVITY),
    )
    for page in pages:
        current = page.counters.get(_ACTIVITY)
        for number, name in enumerate(ACTIVITIES):
            if current is not None:
                labels = (page.job, str(page.rank), page.host, name)
                family.add_metric(labels, float(number == current))
    return [family]


class PageCollector(Collector):
    """A collector that reads the pages whenever metrics are requested.

    Args:
        read: Function that returns the current pages of the ranks.
    """

    def __init__(self, read: Callable[[], Sequence[Page]]) -> None:
        self._read = read

    def describe(self) -> list[Family]:
        """Returns an empty list: the metrics depend on the pages."""
        return []

    def collect(self) -> list[Family]:
        """Returns the current metrics."""
        return families(self._read())
