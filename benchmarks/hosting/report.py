"""What was measured as Markdown."""

import statistics

from tabulate import tabulate

from benchmarks.hosting.figures import FLOOR, OURS
from benchmarks.hosting.targets import TARGETS

# Of a few bytes it says nothing but that a GB has many of them.
_MIN_CPU_BYTES = 1 << 20
_TARGET_COLUMNS = (
    *("hosts", "link", "case", "at most", "that is", "reached", "holds"),
)


def as_markdown(figures, absent, failures):
    """Returns all tables.

    Args:
        figures: Of all places.
        absent: System -> why it was not measured.
        failures: (place, system, reason) of each run that failed.
    """
    parts = [_place(figures, place) for place in figures.places()]
    parts.append("## Targets\n\n" + target_table(figures))
    parts += [f"Absent: {system}: {why}." for system, why in absent.items()]
    parts += [f"FAILED {' '.join(failure)}" for failure in failures]
    return "\n\n".join(parts)


def _place(figures, place):
    lines = [f"## {place}", ""]
    rates = figures.tcp_gb_s(place)
    if rates:
        each = ", ".join(f"{rate:.3f}" for rate in rates)
        lines += [
            "Plain TCP from host to host, both ways at once: "
            f"{statistics.median(rates):.3f} GB/s each way ({each}).",
            "",
        ]
    systems = figures.systems(place)
    columns = ["case", "plain TCP", *systems, "x best peer", "x bound"]
    rows = [
        _row(figures, place, case, systems) for case in figures.cases(place)
    ]
    lines.append("Median of rounds in ms (CPU seconds of all ranks per GB):")
    return "\n".join([*lines, "", _table(rows, columns)])


def _row(figures, place, case, systems):
    ours = figures.median_us(place, case, OURS)
    bound = figures.bound_us(place, case)
    is_large = figures.num_bytes(place, case) >= _MIN_CPU_BYTES
    # A compressed case has no peer; whoever measured it uncompressed is one.
    plain = case.partition(":")[0]
    peer = figures.best_peer(place, plain, figures.median_us)
    return [
        case,
        _with_cpu(
            _milliseconds(bound),
            figures.bound_cpu_s_per_gb(place, case),
            is_large,
        ),
        *(_cell(figures, place, case, system) for system in systems),
        _ratio(ours, peer),
        _ratio(ours, bound),
    ]


def _cell(figures, place, case, system):
    time = _milliseconds(figures.median_us(place, case, system))
    large = figures.num_bytes(place, case) >= _MIN_CPU_BYTES
    cpu = figures.cpu_s_per_gb(place, case, system)
    return _with_cpu(time, cpu, large and system != FLOOR)


def _with_cpu(time, cpu, has_cpu):
    return f"{time} ({cpu:.2f})" if has_cpu and cpu is not None else time


def target_table(figures):
    """Returns what of the targets was measured, and whether it holds."""
    rows = []
    for target in TARGETS:
        limit, reached = target.limit(figures), target.reached(figures)
        if limit is None or reached is None:
            continue
        rows.append(
            [
                *(target.place.layout, target.place.link, target.case),
                target.words(),
                _with_unit(limit, target.bound.unit),
                f"{_with_unit(reached, target.bound.unit)}"
                f" ({target.share(figures)})",
                "yes" if reached <= limit else "no",
            ]
        )
    return _table(rows, _TARGET_COLUMNS)


def _with_unit(value, unit):
    if unit == "us":
        return f"{_milliseconds(value)} ms"
    return f"{value:.2f} {unit}"


def _milliseconds(value):
    if value is None:
        return "-"
    return f"{value / 1e3:.4g}" if value < 1e5 else f"{value / 1e3:.0f}"


def _ratio(value, reference):
    if value is None or not reference:
        return "-"
    return f"{value / reference:.2f}"


def _table(rows, columns):
    return tabulate(
        rows, headers=columns, tablefmt="github", disable_numparse=True
    )
