"""The figures of a report, each as SVG text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.steps import Times
from keras_ring.observe.report.svg import COLORS, as_svg, new_figure, style
from keras_ring.observe.report.waterfall import (
    STATES,
    Waterfall,
    outstanding,
    waterfall,
)

_WIDTH = 9.5
# The largest number of rows that can be read one by one.
MOST_ROWS = 32
_CELLS = 64
_POINTS = 1000


def step_times(analysis: Analysis) -> str:
    """Draws the durations of steps: a histogram, and their course."""
    times = analysis.step_times / 1e6
    figure = new_figure(_WIDTH, 2.6)
    with style():
        left, right = figure.subplots(1, 2, width_ratios=(1, 2))
        # Long steps, such as those that saved, would squeeze all others.
        usual = times <= 2 * np.percentile(times, 95)
        bins = min(40, max(5, len(times) // 3))
        left.hist(times[usual], bins=bins, color=_compute)
        more = np.count_nonzero(~usual)
        left.set_xlabel("ms per step" + f"; {more} took longer" * bool(more))
        left.set_ylabel("steps")
        numbers = analysis.steps.numbers[analysis.steps.usual]
        durations = analysis.usual(analysis.activity.duration) / 1e6
        low, high = np.nanmin(durations, axis=0), np.nanmax(durations, axis=0)
        parts = [
            _thinned(values, how)
            for values, how in (
                (numbers.astype(float), np.min),
                (low, np.min),
                (times, np.median),
                (high, np.max),
            )
        ]
        right.fill_between(parts[0], parts[1], parts[3], color=_hidden, lw=0)
        right.plot(parts[0], parts[2], color=_compute, lw=1)
        right.set_xlabel("step; the band is from the fastest to the slowest")
        right.set_ylabel("ms")
        right.set_ylim(bottom=0)
    return as_svg(figure, "steps")


_compute, _hidden = COLORS["compute"], COLORS["hidden"]


def _thinned(values: Times, how: Callable[[Times], float]) -> Times:
    """Returns values thinned to the number that a figure can show."""
    width = -(-len(values) // _POINTS)
    if width <= 1:
        return values
    ends = range(0, len(values), width)
    return np.array([how(values[at : at + width]) for at in ends])


def one_step(analysis: Analysis) -> str:
    """Draws a step of median duration on all ranks.

    If there are many ranks, those that were last most often and a typical one
    are also shown separately.
    """
    shown = waterfall(analysis)
    ranks = [rank.rank for rank in analysis.timeline.ranks]
    chosen = list(range(len(ranks)))
    many = len(ranks) > MOST_ROWS
    if many:
        chosen = outstanding(analysis)
    height = 0.28 * len(chosen)
    figure = new_figure(_WIDTH, 1.3 + height + (3.5 if many else 0))
    with style():
        axes = figure.subplots(
            1 + many, 1, squeeze=False, height_ratios=[height, 3][: 1 + many]
        )[:, 0]
        _draw_states(axes[0], shown, chosen)
        _buckets(axes[0], [shown.buckets[row] for row in chosen])
        for row in range(len(chosen) - 1):
            axes[0].axhline(row + 0.5, color=_PAPER, lw=2)
        _label_ranks(axes[0], [ranks[row] for row in chosen], len(chosen))
        if many:
            _draw_states(axes[1], shown, list(range(len(ranks))))
            _label_ranks(axes[1], ranks, 16)
        axes[-1].set_xlabel("ms")
        _legend(figure, STATES)
    return as_svg(figure, "waterfall")


def _draw_states(axes: Axes, shown: Waterfall, rows: list[int]) -> None:
    axes.imshow(
        shown.states[rows],
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap([color for _, color in STATES]),
        vmin=-0.5,
        vmax=len(STATES) - 0.5,
        extent=(0, shown.length / 1e6, len(rows) - 0.5, -0.5),
    )


# Color between rows: gray, because the page may be light or dark.
_PAPER = "#8080804d"


def _buckets(axes: Axes, rows: list[list[tuple[float, float]]]) -> None:
    """Draws the buckets that ran while the program computed."""
    for row, bars in enumerate(rows):
        axes.broken_barh(
            [(begin / 1e6, (end - begin) / 1e6) for begin, end in bars],
            (row + 0.12, 0.28),
            facecolors=COLORS["communication"],
        )


def _label_ranks(axes: Axes, ranks: list[int], most: int) -> None:
    axes.set_ylabel("rank")
    rows = range(0, len(ranks), -(-len(ranks) // most))
    axes.set_yticks(list(rows), [str(ranks[row]) for row in rows])


def _legend(figure: Figure, entries: tuple[tuple[str, str], ...]) -> None:
    figure.legend(
        handles=[Patch(color=color, label=label) for label, color in entries],
        loc="outside upper center",
        ncols=len(entries),
        handlelength=1,
    )


def _parts(analysis: Analysis) -> Iterator[tuple[str, str, Times]]:
    """Yields label, color and times in ns by rank of each part of a step."""
    activity = analysis.activity
    waiting = np.nan_to_num(activity.waiting)
    for label, color, times in (
        ("compute", "compute", activity.compute),
        ("data", "data", activity.program["data"]),
        ("checkpoint", "checkpoint", activity.program["checkpoint"]),
        ("waits for the last rank", "wait", waiting),
        ("communication", "communication", activity.exposed - waiting),
    ):
        yield label, COLORS[color], np.nanmean(analysis.usual(times), axis=1)


def phases(analysis: Analysis) -> str:
    """Draws the mean composition of a step on each rank."""
    figure = new_figure(_WIDTH, 3)
    with style():
        axes = figure.subplots()
        parts = list(_parts(analysis))
        _stack(axes, analysis, [(color, times) for _, color, times in parts])
        axes.set_ylabel("ms per step, mean")
        _legend(figure, tuple((label, color) for label, color, _ in parts))
    return as_svg(figure, "phases")


def _stack(
    axes: Axes, analysis: Analysis, parts: list[tuple[str, Times]]
) -> None:
    """Draws stacked bars by rank, as a single path for each part."""
    ranks = [rank.rank for rank in analysis.timeline.ranks]
    edges = np.arange(len(ranks) + 1) - 0.5
    below = np.zeros(len(ranks))
    for color, times in parts:
        above = below + times / 1e6
        axes.stairs(above, edges, baseline=below, fill=True, color=color)
        below = above
    every = range(0, len(ranks), -(-len(ranks) // 16))
    axes.set_xticks(list(every), [str(ranks[row]) for row in every])
    axes.set_xlabel("rank")
    axes.set_xlim(-0.5, len(ranks) - 0.5)


# Colors for small to large values, on a page that is light or dark.
_HEAT = LinearSegmentedColormap.from_list(
    "heat", [COLORS["wait"] + "00", COLORS["wait"] + "ff"]
)


def waiting(analysis: Analysis) -> str:
    """Draws how often each rank was last, and which ranks waited for which."""
    figure = new_figure(_WIDTH, 3)
    usual = analysis.steps.usual
    with style():
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        shares = [
            1e8 * analysis.lateness.share(rank.rank, usual)
            for rank in analysis.timeline.ranks
        ]
        _stack(left, analysis, [(COLORS["wait"], np.array(shares))])
        left.set_ylabel("was last, % of the steps")
        left.set_ylim(0, 105)
        row = int(np.argmax(shares))
        if shares[row]:
            left.annotate(
                f"rank {analysis.timeline.ranks[row].rank}",
                (row, shares[row] / 1e6),
                ha="center",
                va="bottom",
            )
        waits = analysis.waits.start + analysis.waits.within
        cells, width = _blocks(waits * 1e3 / max(1, analysis.steps.count))
        image = right.imshow(
            cells,
            aspect="auto",
            interpolation="nearest",
            cmap=_HEAT,
            vmin=0,
            extent=(-0.5, len(waits) - 0.5, len(waits) - 0.5, -0.5),
        )
        right.set_xlabel("for rank")
        right.set_ylabel("waits: rank")
        for axis in (right.xaxis, right.yaxis):
            axis.get_major_locator().set_params(integer=True)
        label = "ms per step" + (f", mean of {width} ranks" * (width > 1))
        figure.colorbar(image, ax=right, label=label)
    return as_svg(figure, "waiting")


def _blocks(cells: Times) -> tuple[Times, int]:
    """Returns the means of blocks of a square matrix, and the block width."""
    width = -(-len(cells) // _CELLS)
    if width == 1:
        return cells, 1
    starts = range(0, len(cells), width)
    sums = np.add.reduceat(np.add.reduceat(cells, starts, 0), starts, 1)
    counts = np.diff([*starts, len(cells)])
    return sums / np.outer(counts, counts), width


def overlap(analysis: Analysis) -> str:
    """Draws the part of the communication that computing hides, over time."""
    figure = new_figure(_WIDTH, 2.4)
    activity = analysis.activity
    with style():
        axes = figure.subplots()
        numbers = analysis.steps.numbers[analysis.steps.usual].astype(float)
        total = np.nanmedian(analysis.usual(activity.communication), axis=0)
        hidden = np.nanmedian(analysis.usual(activity.hidden), axis=0)
        steps, all_, below = (
            _thinned(values, np.median) for values in (numbers, total, hidden)
        )
        edges = np.append(steps, steps[-1:] + 1)
        below, all_ = below / 1e6, np.maximum(all_, below) / 1e6
        axes.stairs(below, edges, fill=True, color=_hidden)
        axes.stairs(
            all_,
            edges,
            baseline=below,
            fill=True,
            color=COLORS["communication"],
        )
        axes.set_xlabel("step")
        axes.set_ylabel("ms, median of ranks")
        axes.set_ylim(bottom=0)
        _legend(
            figure,
            (
                ("hidden behind compute", _hidden),
                ("not hidden", COLORS["communication"]),
            ),
        )
    return as_svg(figure, "overlap")
