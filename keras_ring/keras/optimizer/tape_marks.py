"""Records which gradients a `DistributedGradientTape` has reduced.

Variables are marked instead of gradients, because clipping or scaling a
gradient makes a new tensor. A mark is used up, so that a variable does not
count as reduced for ever:

* in eager execution, when an optimizer applies gradients of the variable;
* in a function that is traced, once an optimizer has applied gradients there,
  the mark holds in this function alone. Until then the function may return the
  gradients, and they may be applied after any call of it.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Container, Iterator, Sequence

from keras_ring._typing import Gradient, Graph, Source, Tensor, Variable
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.backends import backend

_MARKS = "_keras_ring_marks"


@dataclasses.dataclass(frozen=True)
class ReducedBy:
    """The ranks over which a tape has reduced.

    Args:
        process_set: A `kr.ProcessSet`, whose ranks have reduced.
        local: The variables whose gradients were not reduced.
    """

    process_set: ProcessSet
    local: Container[Source]


class _InFunction:
    """The reductions of a tape in one function or graph."""

    def __init__(self) -> None:
        self.is_applied = False
        self.operations: set[str] = set()  # by name; they make gradients
        # Whether the steps count that were not applied yet.
        self.answers: list[Tensor] = []


class _Marks:
    """The marks of one variable."""

    def __init__(self) -> None:
        self.is_reduced = False  # in eager execution
        self.by_whom: ReducedBy | None = None  # the last time
        self.functions: weakref.WeakKeyDictionary[Graph, _InFunction] = (
            weakref.WeakKeyDictionary()
        )
        # The last applied gradient, which two optimizers may share.
        self.applied: Callable[[], Gradient] = lambda: None
        # Whether a step was discarded, in eager execution, before it was
        # applied.
        self.is_discarded = False
        # Those of the gradients that are being applied.
        self.answers: list[Tensor | bool] = []


def mark(
    sources: Sequence[Source],
    gradients: Sequence[Gradient],
    by_whom: ReducedBy | None = None,
    committed: Tensor | None = None,
) -> None:
    """Records that gradients of the variables among `sources` are reduced.

    Args:
        sources: Variables and tensors.
        gradients: Their gradients, or `None`s.
        by_whom: The ranks that have reduced them.
        committed: Boolean scalar, whether the step counts, in an elastic job.
    """
    function = backend.traced_function()
    for source, gradient in zip(sources, gradients, strict=True):
        if backend.variable_path(source) is None or gradient is None:
            continue
        marks = _of(source)
        marks.by_whom = by_whom
        if function is None:
            marks.is_reduced = True
            if committed is not None and not bool(committed):
                marks.is_discarded = True
            continue
        here = marks.functions.setdefault(function, _InFunction())
        here.operations.update(each.op.name for each in _tensors(gradient))
        if committed is not None:
            here.answers.append(committed)


def is_marked(variable: Variable, gradient: Gradient) -> bool:
    """Returns whether a tape may have reduced a gradient of a variable."""
    marks = _of(variable)
    if marks.is_reduced or marks.applied() is gradient:
        return True
    traced = list(_traced())
    return any(
        function in traced or not here.is_applied
        for function, here in marks.functions.items()
    )


def reduced_by(variables: Sequence[Variable]) -> ReducedBy | None:
    """Returns the ranks that have last reduced gradients of variables.

    Args:
        variables: The variables that an optimizer is about to update.
    """
    return _of(variables[0]).by_whom if variables else None


def use(variable: Variable, gradient: Gradient) -> None:
    """Records that an optimizer applies a marked gradient."""
    marks = _of(variable)
    if backend.is_eager():
        marks.applied = weakref.ref(gradient)
    marks.is_reduced = False
    # Of the gradients of an eager step, a traced function knows nothing later.
    marks.answers = [False] if marks.is_discarded and backend.is_eager() else []
    marks.is_discarded = False
    for function in _traced():
        if function in marks.functions:
            here = marks.functions[function]
            here.is_applied = True
            marks.answers += here.answers
            here.answers = []


def answers(variables: Sequence[Variable]) -> list[Tensor | bool]:
    """Returns whether the steps count whose gradients are being applied.

    Args:
        variables: The variables that an optimizer is about to update.
    """
    found = {id(each): each for v in variables for each in _of(v).answers}
    return list(found.values())


def comes_from_tape(variable: Variable, gradient: Gradient) -> bool:
    """Returns whether a tape has reduced a gradient already."""
    marks = _of(variable)
    if backend.is_eager():
        return marks.is_reduced
    operations = {
        name
        for function in _traced()
        if function in marks.functions
        for name in marks.functions[function].operations
    }
    if not operations:
        return False
    seen: set[str] = set()
    waiting = [
        each.op for each in _tensors(gradient) if backend.is_tensor(each)
    ]
    while waiting:
        operation = waiting.pop()
        if operation.name in operations:
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting.extend(each.op for each in operation.inputs)
    return False


def _tensors(gradient: Gradient) -> list[Tensor]:
    return [gradient.values if backend.is_sparse(gradient) else gradient]


def _traced() -> Iterator[Graph]:
    """Yields the function that is being traced, and its outer functions."""
    graph = backend.graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _of(variable: Variable) -> _Marks:
    variable = backend.storage(variable)
    if not hasattr(variable, _MARKS):
        setattr(variable, _MARKS, _Marks())
    found: _Marks = getattr(variable, _MARKS)
    return found
