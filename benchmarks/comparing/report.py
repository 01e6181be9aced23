"""The comparison as one HTML file, plots and all."""

import base64
from pathlib import Path

import jinja2

from benchmarks.comparing import plots, table

_TITLES = {
    "ladder": "One tensor",
    "steps": "A training step",
    "sweep": "The same bytes in one tensor or many",
}
NO_PHASES = (
    "No timeline of a step: this build of keras_ring does not count the "
    "phases (wait_ns and the others of kr.metrics())."
)


def as_html(comparison):
    """Returns the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    tables = [
        (_TITLES[section], table.COLUMNS, table.rows(comparison, section))
        for section in comparison.sections
    ]
    tables.append(
        (
            "Memory of a process",
            table.MEMORY_COLUMNS,
            table.memory_rows(comparison),
        )
    )
    notes = [f"Skipped {name}: {why}." for name, why in comparison.skipped]
    notes += [f"Failed: {name}: {why}." for name, why in comparison.failures]
    if not plots.with_phases(comparison):
        notes.append(NO_PHASES)
    return environment.get_template("report.html.j2").render(
        comparison=comparison,
        tables=tables,
        plots=[
            (title, base64.b64encode(svg.encode()).decode())
            for title, svg in _plots(comparison)
        ],
        notes=notes,
    )


def _plots(comparison):
    if "ladder" in comparison.sections:
        yield "Time against size", plots.latency(comparison)
        yield "Bandwidth against size", plots.bandwidth(comparison)
    if "sweep" in comparison.sections:
        yield "Time against the number of tensors", plots.sweep(comparison)
    if plots.with_phases(comparison):
        yield "Where a step's time goes", plots.phases(comparison)
