"""The comparison as rows, and as text."""

from tabulate import tabulate

from benchmarks.comparing.plan import FLOOR, MPI

COLUMNS = (
    "case",
    "system",
    "p10 us",
    "median us",
    "p90 us",
    "busbw GB/s",
    "x floor",
    "x MPI",
    "CPU s/GB",
)
MEMORY_COLUMNS = ("system", "version", "extra MiB per rank", "above floor")

_MIN_CPU_BYTES = 1 << 20


def rows(comparison, section):
    """Returns the rows of a section, as text, with the columns above."""
    return [
        _row(comparison, record)
        for case in comparison.sections.get(section, [])
        for record in comparison.of_case(case)
    ]


def ratio(comparison, record, reference):
    """Returns how many times the reference's median a record's is.

    `None` where the reference has not measured the case.
    """
    other = comparison.find(reference, record.case)
    return None if other is None else record.median_us / other.median_us


def memory_rows(comparison):
    """Returns the rows of what each system needs at its highest.

    The tensors and results of the cases are in it; the floor has them too.
    """
    most = {
        system: max(
            record.memory_extra_bytes
            for record in comparison.records
            if record.system == system
        )
        for system in comparison.systems
        if any(record.system == system for record in comparison.records)
    }
    versions = {record.system: record.version for record in comparison.records}
    floor = most.get(FLOOR)
    return [
        (
            system,
            versions[system],
            f"{extra / 2**20:.0f}",
            "-" if floor is None else f"{(extra - floor) / 2**20:+.0f}",
        )
        for system, extra in most.items()
    ]


def as_text(comparison):
    """Returns the whole comparison for a terminal."""
    parts = []
    for section in comparison.sections:
        section_rows = rows(comparison, section)
        parts.append(_table(section_rows, COLUMNS))
    parts.append(_table(memory_rows(comparison), MEMORY_COLUMNS))
    parts += [f"skipped {name}: {why}" for name, why in comparison.skipped]
    parts += [f"FAILED {name}: {why}" for name, why in comparison.failures]
    return "\n".join(parts)


def _row(comparison, record):
    return (
        record.case,
        record.system,
        f"{record.percentile_us(10):.1f}",
        f"{record.median_us:.1f}",
        f"{record.percentile_us(90):.1f}",
        f"{record.busbw:.3f}",
        _as_ratio(ratio(comparison, record, FLOOR)),
        _as_ratio(ratio(comparison, record, MPI)),
        _cpu(record),
    )


def _cpu(record):
    # Of a few bytes it says nothing but that a GB has many of them.
    if record.num_bytes < _MIN_CPU_BYTES:
        return "-"
    return f"{record.cpu_s_per_gb:.2f}"


def _as_ratio(value):
    return "-" if value is None else f"{value:.2f}"


def _table(table_rows, columns):
    left = [name in ("case", "system", "version") for name in columns]
    return tabulate(
        table_rows,
        headers=columns,
        disable_numparse=True,
        colalign=["left" if is_left else "right" for is_left in left],
    )
