"""Status pages as metrics of Prometheus.

Names and units follow Prometheus' conventions: seconds and bytes, `_total` for
what only grows, times since the epoch for moments. Needs prometheus_client, so
whoever serves no metrics does not load this.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from keras_ring.live.pages import Page
from keras_ring.live.words import ACTIVITIES

_PREFIX = "keras_ring_"
_LABELS = ("job", "rank", "host")
# Counters of kr.metrics() that say how things are, not how often they were.
_GAUGES = frozenset(
    ("pending", "epoch", "arena_bytes_in_use", "arena_bytes_kept")
)
# Those that are times of a host's steady clock.
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
# What a gauge counts is a part of its name.
_GAUGE_UNITS = {"pending": "_tensors"}

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class _Series:
    """How a counter of `kr.metrics()` is shown.

    Args:
        name: Of the metric, without `_total`.
        kind: `"counter"`, `"gauge"` or `"moment"`.
        scale: What its values are multiplied with.
    """

    name: str
    kind: str
    scale: float = 1.0


def series_of(name: str, unit: str) -> _Series:
    """Returns how a counter of `kr.metrics()` is shown.

    Args:
        name: Its name there.
        unit: Its unit there.
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
        pages: What its ranks show now.
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
    """Metrics by name, in the order in which they are first asked for."""

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
    """Has pages read when somebody asks for metrics, and only then.

    Args:
        read: Returns what the ranks show now.
    """

    def __init__(self, read: Callable[[], Sequence[Page]]) -> None:
        self._read = read

    def describe(self) -> list[Family]:
        """Returns nothing: what there is, ranks say."""
        return []

    def collect(self) -> list[Family]:
        """Returns the metrics as they are now."""
        return families(self._read())
