"""Descriptions of arguments that several public functions share.

A docstring has `{{name}}` in place of a description. So each function
describes all of its arguments, and each description is written once.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_FRAGMENTS = {
    "name": """
        String, the same on all ranks. Defaults to the location in the program:
        the function that is traced, the loop or branch in it, and which of the
        collectives there. A name that is given again in one function gets a
        number behind it. In eager execution those without a name share one, and
        only one thread may make them.""",
    "op": """
        A `kr.ReduceOp`: `kr.Average`, `kr.Sum`, `kr.Min`, `kr.Max`,
        `kr.Product` or `kr.Adasum`. `Average` of integers is the exact sum,
        divided and rounded down, as in NumPy. `Adasum` is of floating dtypes
        only. Defaults to `kr.Average`.""",
    "prescale_factor": """
        Float, by which each rank's tensor is multiplied before the reduction.
        Products of integers are computed in float64 and lose what is behind the
        point. Defaults to `1.0`.""",
    "postscale_factor": """
        Float, by which the result is multiplied, in the same way. Defaults to
        `1.0`.""",
    "compression": """
        One of `kr.Compression.none`, `kr.Compression.fp16` and
        `kr.Compression.bf16`: wide floating-point tensors travel as float16 or
        bfloat16, and are rounded to that before and after the reduction. Or an
        object with the methods `compress` and `decompress` of those. Defaults
        to `kr.Compression.none`.""",
    "process_set": """
        A `kr.ProcessSet` of which this rank is a member. Only its ranks take
        part, and an average is over them. Defaults to all ranks.""",
    "reducible": """
        A tensor (or what converts to one), Keras or TensorFlow variable, of the
        same shape on every rank. Of dtype uint8, int8, uint16, int16, int32,
        int64, float16, bfloat16, float32 or float64. float16 and bfloat16 are
        summed in float32 and rounded once.""",
    "movable": """
        Of a dtype that `allreduce` takes, or bool, complex64 or complex128.""",
    "root_rank": """
        Integer, the rank that the others follow: its rank in the job, which is
        a member of the process set.""",
    "object_name": """
        String, the same on all ranks. Needed only where several threads call
        this at once.""",
    "array_name": """
        String, the same on all ranks. Those without a name share one, and only
        one thread may make them. Defaults to `None`, no name.""",
    "async_name": """
        String, the same on all ranks. Those without a name are matched by their
        order, and only one thread may make them. Defaults to `None`, no
        name.""",
    "reducible_dtypes": """
        Of dtype uint8, int8, uint16, int16, int32, int64, float16, bfloat16,
        float32 or float64.""",
    "movable_dtypes": """
        Of a dtype that `allreduce` takes, or bool, complex64 or complex128.""",
    "op_name": """
        String, the name of the TensorFlow operation. Defaults to one that
        TensorFlow makes.""",
    "topology": """
        When it runs, before `init` or after `shutdown`, or when the process set
        was removed.""",
    "disagreement": """
        If the ranks disagree; the text, the same on all of them, names the
        tensor, the ranks and values.""",
    "impossible": """
        If they agree on something impossible, or the name is in flight on this
        rank, or this rank is not a member of the process set.""",
    "lost": """
        If a rank is lost or has left the job.""",
}
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_WIDTH = 80


def described(function: _Function) -> _Function:
    """Puts the shared descriptions into the docstring of a function.

    Raises:
        KeyError: If the docstring has a name without a description.
    """
    function.__doc__ = fill(inspect.getdoc(function) or "")
    return function


def fill(docstring: str) -> str:
    """Returns a docstring without indent with its names replaced."""
    return "\n".join(_filled(line) for line in docstring.splitlines())


def _filled(line: str) -> str:
    if not _PLACEHOLDER.search(line):
        return line
    indent = len(line) - len(line.lstrip())
    # Further lines after the name of an argument or error are indented.
    hang = 4 if re.match(r" *[\w.]+: ", line) else 0
    text = _PLACEHOLDER.sub(lambda found: _FRAGMENTS[found.group(1)], line)
    return textwrap.fill(
        " ".join(text.split()),
        width=_WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    )
