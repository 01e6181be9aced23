"""Figures as SVG whose text has the color and font of the page."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Placeholder that is replaced in the SVG by the color of the page's text.
_INK = "#010203"
_STYLE: Any = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
# Colors that color-blind readers can tell apart, on light and on dark pages.
COLORS = {
    "data": "#e69f00",
    "checkpoint": "#cc79a7",
    "compute": "#56a0d3",
    "wait": "#d55e00",
    "communication": "#009e73",
    "hidden": "#8fd3bd",
    "other": "#9a9a9a",
}


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure; sizes are in inches."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        return figure


def style() -> Any:
    """Returns the context in which axes are made and drawn."""
    return matplotlib.rc_context(_STYLE)


def as_svg(figure: Figure, name: str) -> str:
    """Returns a figure for a page.

    Args:
        figure: The figure.
        name: Name of the figure, unique within the page.
    """
    text = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace(_INK, "currentColor")
    # The page defines the font family.
    svg = re.sub(r"font: ([0-9.]+px)[^;\"]*", r"font-size: \1", svg)
    return _own_names(svg, name)


def _own_names(svg: str, name: str) -> str:
    """Prefixes the ids in a figure, and drops unused ones."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename, svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
