"""Modules by their former paths, for pickles that earlier versions wrote.

A pickle names the module of each class and function in it. These are the
modules that pickles of optimizers, callbacks, reductions, wire formats and
process sets name.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_CALLBACKS = (
    "backup_and_restore",
    "broadcast",
    "consistency_check",
    "input_pipeline",
    "learning_rate_schedule",
    "learning_rate_warmup",
    "metric_average",
    "model_checkpoint",
    "progress",
    "rank_zero_only",
)
_PATHS = {
    "keras_ring._agreement.time_budget": "keras.agreement.time_budget",
    "keras_ring._model.consistency": "keras.model.consistency",
    "keras_ring._ops.compression": "tensorflow.compression",
    "keras_ring._ops.reduce_ops": "core.reduce_ops",
    "keras_ring._runtime.process_sets": "core.process_sets",
    "keras_ring._training.keras2_optimizer": "keras.optimizer.keras2_optimizer",
    "keras_ring._training.keras3_optimizer": "keras.optimizer.keras3_optimizer",
    "keras_ring._training.reduction": "keras.optimizer.reduction",
    "keras_ring._training.v1_optimizer": "keras.optimizer.v1_optimizer",
    **{
        f"keras_ring.callbacks.{name}": f"keras.callbacks.{name}"
        for name in _CALLBACKS
    },
}
_PACKAGES = {path.rpartition(".")[0] for path in _PATHS if "._" in path}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its former path, after all other finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in _PATHS:
            return importlib.util.spec_from_loader(fullname, self)
        if fullname in _PACKAGES:
            return importlib.util.spec_from_loader(
                fullname, self, is_package=True
            )
        return None

    def create_module(
        self, spec: importlib.machinery.ModuleSpec
    ) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if now := _PATHS.get(module.__name__):
            sys.modules[module.__name__] = importlib.import_module(
                f"keras_ring.{now}"
            )


def keep() -> None:
    """Makes the former paths importable. One call is enough."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
