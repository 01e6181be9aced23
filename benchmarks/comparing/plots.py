"""The comparison as plots, each an SVG text."""

import io

import matplotlib

from benchmarks.comparing.plan import FLOOR

# Without a display.
matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

# In the order in which a step goes through them; others come after.
PHASES = (
    "queue",
    "negotiate",
    "wait",
    "pack",
    "reduce",
    "unpack",
    "callback",
)


def latency(comparison):
    """Time of a reduction against its size."""
    figure, axes = _axes("bytes", "us, median, from 10th to 90th percentile")
    for system in comparison.systems:
        records = comparison.of_system(system, "ladder")
        sizes = [record.num_bytes for record in records]
        color = _color(comparison, system)
        _line(axes, sizes, records, system, color)
    return _finish(figure, axes)


def bandwidth(comparison):
    """Bus bandwidth of a reduction against its size."""
    figure, axes = _axes("bytes", "busbw, GB/s")
    for system in comparison.systems:
        records = comparison.of_system(system, "ladder")
        # The floor moves nothing.
        if records and system != FLOOR:
            sizes = [record.num_bytes for record in records]
            axes.plot(
                sizes,
                [record.busbw for record in records],
                "o-",
                color=_color(comparison, system),
                label=system,
            )
    return _finish(figure, axes)


def sweep(comparison):
    """Time of a step against the number of tensors of the same total."""
    figure, axes = _axes("tensors of the same total size", "us, median")
    for system in comparison.systems:
        records = comparison.of_system(system, "sweep")
        for grouped in (False, True):
            chosen = [
                record
                for record in records
                if record.case.endswith(" grouped") == grouped
            ]
            counts = [record.num_tensors for record in chosen]
            label = f"{system}, grouped" if grouped else system
            style = "--" if grouped else "-"
            color = _color(comparison, system)
            _line(axes, counts, chosen, label, color, style)
    return _finish(figure, axes)


def with_phases(comparison):
    """Returns the records that say where their time went."""
    return [
        record
        for cases in comparison.sections.values()
        for case in cases
        for record in comparison.of_case(case)
        if any(record.phases_ns.values())
    ]


def phases(comparison):
    """Where a step's time goes: one bar per case, in shares of its median."""
    records = with_phases(comparison)
    known = [name for name in PHASES if name in records[0].phases_ns]
    names = known + sorted(set(records[0].phases_ns) - set(known))
    figure, axes = plt.subplots(figsize=(8, 1.5 + 0.25 * len(records)))
    labels = [f"{record.case}, {record.system}" for record in records]
    left = np.zeros(len(records))
    for name in names:
        shares = np.array(
            [
                record.phases_ns.get(name, 0.0) / 1e3 / record.median_us
                for record in records
            ]
        )
        axes.barh(labels, shares, left=left, label=name)
        left += shares
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("time in each phase / median time of the step")
    return _finish(figure, axes)


def _axes(x_label, y_label):
    figure, axes = plt.subplots(figsize=(8, 5))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _color(comparison, system):
    """The same for a system in every plot."""
    return f"C{comparison.systems.index(system)}"


def _line(axes, x, records, label, color, style="-"):
    if not records:
        return
    medians = [record.median_us for record in records]
    axes.plot(x, medians, f"o{style}", label=label, color=color)
    axes.fill_between(
        x,
        [record.percentile_us(10) for record in records],
        [record.percentile_us(90) for record in records],
        color=color,
        alpha=0.15,
    )


def _finish(figure, axes):
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    plt.close(figure)
    return text.getvalue()
