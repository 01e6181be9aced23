"""Records as lines of text, with the columns of nccl-tests."""

from __future__ import annotations

from keras_ring.bench.record import Record

HEADER = (
    f"{'case':32} {'bytes':>11} {'tensors':>7} {'p10 us':>10} {'median':>10} "
    f"{'p90':>10} {'algbw':>8} {'busbw':>8} {'control B':>9} check"
)


def row(record: Record) -> str:
    """Returns the line of one case; bandwidths are in GB/s."""
    control = record.control_bytes
    return (
        f"{record.case:32} {record.num_bytes:11} {record.num_tensors:7} "
        f"{record.percentile_us(10):10.1f} {record.median_us:10.1f} "
        f"{record.percentile_us(90):10.1f} {record.algbw:8.3f} "
        f"{record.busbw:8.3f} "
        f"{'-' if control is None else format(control, '.0f'):>9} ok"
    )
