"""An extension of Griffe: fills in what docstrings share.

`keras_ring.core.docstrings` does so where a function is defined. Here nothing
is imported but that one file, which needs nothing of the package.
"""

import importlib.util
from pathlib import Path
from typing import Any

import griffe

_FILE = Path(__file__).resolve().parents[2] / "keras_ring/core/docstrings.py"
_spec = importlib.util.spec_from_file_location("shared_descriptions", _FILE)
assert _spec is not None and _spec.loader is not None  # noqa: S101
_docstrings = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_docstrings)


class SharedDescriptions(griffe.Extension):
    """Fills `{{name}}` in the docstrings of functions."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called with each function that was parsed."""
        if func.docstring is not None:
            func.docstring.value = _docstrings.fill(func.docstring.value)
