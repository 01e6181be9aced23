"""Records as lines of text, with the columns of nccl-tests."""

from __future__ import annotations

from keras_ring.bench.host_link import HostLink
from keras_ring.bench.record import Record

_LEFT = (
    f"{'case':32} {'bytes':>11} {'tensors':>7} {'p10 us':>10} {'median':>10} "
    f"{'p90':>10} {'algbw':>8} {'busbw':>8} "
)
_BETWEEN_HOSTS = f"{'bound us':>10} {'x bound':>8} {'CPU s/GB':>8} "
_RIGHT = f"{'control B':>9} check"
HEADER = _LEFT + _RIGHT


def header(link: HostLink) -> str:
    """Returns the heading; jobs of several hosts have more columns."""
    return _LEFT + (_BETWEEN_HOSTS if link.hosts > 1 else "") + _RIGHT


def row(record: Record) -> str:
    """Returns the line of one case; bandwidths are in GB/s."""
    return (
        f"{record.case:32} {record.num_bytes:11} {record.num_tensors:7} "
        f"{record.percentile_us(10):10.1f} {record.median_us:10.1f} "
        f"{record.percentile_us(90):10.1f} {record.algbw:8.3f} "
        f"{record.busbw:8.3f} "
        f"{_between_hosts(record) if record.link.hosts > 1 else ''}"
        f"{_or_dash(record.control_bytes, '.0f'):>9} ok"
    )


def _between_hosts(record: Record) -> str:
    return (
        f"{_or_dash(record.link_bound_us, '.1f'):>10} "
        f"{_or_dash(record.link_ratio, '.4g'):>8} "
        f"{format(record.cpu_s_per_gb, '.4g'):>8} "
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
