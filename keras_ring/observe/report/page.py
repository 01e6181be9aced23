"""The report as one self-contained HTML page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from keras_ring.observe.report import figures, tables, units
from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.glossary import TERMS
from keras_ring.observe.report.tables import Table
from keras_ring.observe.report.verdict import verdict
from keras_ring.observe.report.waterfall import median_step


class Section(NamedTuple):
    """A part of the page.

    Args:
        key: Anchor of the section for links.
        title: Heading of the section.
        text: Explanation of the figure and the tables.
        figure: SVG text, or `None`.
        tables: Tables of the section. Those without rows are left out.
    """

    key: str
    title: str
    text: str
    figure: Markup | None = None
    tables: tuple[Table, ...] = ()


def as_html(analysis: Analysis) -> str:
    """Returns the page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("keras_ring.observe.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        verdict=verdict(analysis),
        facts=list(_facts(analysis)),
        sections=[
            section for section in _sections(analysis) if _holds(section)
        ],
        terms=TERMS,
    )


def _holds(section: Section) -> bool:
    return bool(section.figure or any(t.rows for t in section.tables))


def _facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    timeline = analysis.timeline
    hosts = [host or "unknown" for host in timeline.hosts]
    shown = ", ".join(hosts[:4])
    if len(hosts) > 4:
        shown += f" and {len(hosts) - 4} more"
    yield "ranks", str(timeline.size)
    yield "hosts", f"{len(hosts)} ({shown})"
    yield "steps", str(analysis.steps.count)
    if analysis.step_time:
        yield "step, median", units.time(analysis.step_time)
    yield "time", units.time(timeline.end_ns - timeline.begin_ns)
    started = [r.started_unix_ns for r in timeline.ranks if r.started_unix_ns]
    if started:
        when = datetime.datetime.fromtimestamp(
            min(started) / 1e9, datetime.timezone.utc
        )
        yield "recorded from", f"{when:%Y-%m-%d %H:%M:%S} UTC"
    versions = {rank.version for rank in timeline.ranks if rank.version}
    if versions:
        yield "keras_ring", ", ".join(sorted(versions))
    command = next(filter(None, (rank.command for rank in timeline.ranks)), "")
    if command:
        yield "to run it again", command


def _sections(analysis: Analysis) -> Iterator[Section]:
    def drawn(draw: Callable[[Analysis], str]) -> Markup | None:
        # The output of matplotlib, which escapes all text.
        return Markup(draw(analysis)) if analysis.step_time else None

    yield Section(
        "steps",
        "Steps",
        "How long steps took, without the first, in which functions are"
        " traced. A step begins where the one before it has ended.",
        drawn(figures.step_times),
    )
    number = ""
    if analysis.step_time:
        step = int(analysis.steps.numbers[median_step(analysis)])
        number = f"Step {step}, which took as long as most, on all ranks. "
    yield Section(
        "waterfall",
        "One step",
        number
        + "Thin bars are buckets that run while the program computes."
        + " Above, ranks that were last most often and one that is like most."
        * (analysis.timeline.size > figures.MOST_ROWS),
        drawn(figures.one_step),
    )
    yield Section(
        "phases",
        "Where the time goes",
        "What a step of each rank is made of, and below what the core's phases"
        " take in a step: sums over tensors (negotiate) and over buckets (all"
        " others), many of which run at the same time.",
        drawn(figures.phases),
        (tables.core_phases(analysis),),
    )
    yield Section(
        "waiting",
        "Who waits for whom",
        "Left, how often each rank was the last that others waited for. Right,"
        " how long ranks waited, and for whom: until the last one was ready,"
        " and for its bytes while buckets ran.",
        drawn(figures.waiting),
        (tables.last_ranks(analysis),),
    )
    share = units.share(analysis.hidden_share)
    yield Section(
        "overlap",
        "Overlap",
        f"Communication that runs while the program computes costs nothing:"
        f" {share} of it.",
        drawn(figures.overlap),
    )
    yield _fusion(analysis)
    yield Section(
        "hosts",
        "Hosts and links",
        "Bytes of tensors, not of what goes over links: an allreduce of N"
        " ranks sends up to 2 (N-1)/N times as much from each.",
        None,
        (tables.hosts(analysis),),
    )
    yield Section(
        "memory", "Memory", "At its largest.", None, (tables.memory(analysis),)
    )
    yield Section(
        "faults",
        "Faults",
        "What went wrong, with the job or with its timeline.",
        None,
        (tables.problems(analysis),),
    )
    yield Section(
        "environment",
        "Environment",
        "What the ranks were told. The same variables make another run alike.",
        None,
        (tables.settings(analysis),),
    )


def _fusion(analysis: Analysis) -> Section:
    fusion = analysis.fusion
    text = ""
    if fusion is not None:
        text = (
            f"A step sends {units.num_bytes(fusion.step_bytes)} in"
            f" {fusion.per_step:.0f} bucket{'s' * (fusion.per_step != 1)} of"
            f" {units.num_bytes(fusion.median_bytes)} in the median, as rank"
            f" {fusion.rank} has seen it. Those that cost most come first."
        )
    return Section(
        "tensors",
        "Tensors and buckets",
        text,
        None,
        (tables.tensors(analysis), tables.buckets(analysis)),
    )
