"""Warns of an optimizer that steps on the gradients of one rank.

A program that has forgotten `kr.DistributedOptimizer` trains another model on
each rank. It is not an error: ranks may train apart on purpose for some steps,
and a program may average gradients or parameters itself.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from keras_ring.core import notices, topology
from keras_ring.torch.optimizer import is_distributed

# A rank may step once or twice before it has anything to share.
_STEPS = 3


@dataclasses.dataclass
class _Steps:
    """The steps that an optimizer has made in this job.

    Attributes:
        count: Integer.
        entries: Integer, the tensors that ranks had exchanged at the first.
    """

    count: int
    entries: int


class _Watch:
    """Looks at the first steps of each optimizer."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Optimizer, _Steps] = (
            weakref.WeakKeyDictionary()
        )
        self._hook: Any = None

    def begin(self) -> None:
        """Begins anew, with a job."""
        self._of.clear()
        if self._hook is None:
            self._hook = register_optimizer_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        steps = self._of.get(optimizer)
        if steps is not None and steps.count >= _STEPS:
            return
        if not topology.is_initialized() or topology.size() == 1:
            return
        if is_distributed(optimizer):
            return
        entries = topology.metrics()["entries"]
        if steps is None:
            self._of[optimizer] = _Steps(1, entries)
            return
        steps.count += 1
        if steps.count == _STEPS and entries == steps.entries:
            notices.warn_once(
                f"optimizer {type(optimizer).__name__} has made {_STEPS - 1} "
                "steps with gradients of this rank alone, in a job of "
                f"{topology.size()} ranks, and nothing was exchanged between "
                "them: each rank trains a model of its own. Average them: "
                "`kr.DistributedOptimizer(optimizer, "
                "model.named_parameters())`. Ignore this if ranks shall train "
                "apart."
            )


_WATCH = _Watch()


def watch() -> None:
    """Looks at the first steps of each optimizer, from now on."""
    _WATCH.begin()
