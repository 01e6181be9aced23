"""Compares the weights of a model between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from keras_ring._typing import Model, Variable
from keras_ring.core import process_sets
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement.difference import compared
from keras_ring.keras.agreement.time_budget import Budget
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.keras.model.model_optimizers import is_local, optimizers_of
from keras_ring.keras.model.sync_batch_normalization import (
    SyncBatchNormalization,
)

_ALLOWANCE = 1.0  # seconds of frequent checks at the ends of epochs


def compared_weights(model: Model) -> list[Variable]:
    """Returns the weights that must be the same on all ranks.

    These are all weights that were made to be trained, frozen or not, except
    those that were registered as local to each rank. Other weights may differ:
    `keras.layers.BatchNormalization` keeps statistics of the batches of its
    rank.
    """
    weights: list[Variable] = []
    for layer in model._flatten_layers():
        if isinstance(layer, SyncBatchNormalization) or getattr(
            layer, "synchronized", False
        ):
            weights.extend(layer.weights)
        else:
            weights.extend(compat.declared_trainable(layer))
    optimizers = optimizers_of(model)
    return list(
        {id(w): w for w in weights if not is_local(w, optimizers)}.values()
    )


def require_consistent(
    model: Model,
    when: str,
    process_set: ProcessSet = global_process_set,
    wish: int = 0,
    *,
    but: Iterable[Variable] = (),
) -> int:
    """Raises an error on all ranks if their weights differ.

    Args:
        model: A `keras.Model`.
        when: String, the time of the check for the error, such as "after
            epoch 3".
        process_set: A `kr.ProcessSet`, whose ranks train the model. Defaults
            to all ranks.
        wish: Integer, not negative, that is exchanged with the fingerprint.
        but: Variables that are not compared.

    Returns:
        The largest `wish` of all ranks.

    Raises:
        ConsistencyError: If they differ; the text names the first weight that
            differs, and the ranks.
    """
    if process_sets.is_alone(process_set):
        return wish
    left_out = {id(backend.storage(each)) for each in but}
    weights = [
        weight
        for weight in compared_weights(model)
        if id(backend.storage(weight)) not in left_out
    ]
    found, wishes = compared(weights, "consistency", process_set, wish=wish)
    if found is None:
        return wishes
    if found.counts:
        raise ConsistencyError(
            f"The ranks do not train the same model: {when}, ranks "
            f"{process_set.ranks} have {found.counts} weights."
        )
    raise ConsistencyError(
        f"The weights of the ranks differ: {when}, {found.count} of "
        f"{len(weights)} do, the first being {found.path!r}, of which "
        f"{found.ranks}. Something changes "
        "weights on some ranks only: a callback, code under "
        "`if kr.rank() == 0`, an update inside `kr.allow_local_updates()`, or "
        "initial weights that were not shared ("
        "`kr.callbacks.BroadcastGlobalVariablesCallback`)."
    )


class EpochComparison:
    """Compares weights at the ends of epochs, as often as that is cheap.

    It does so after each epoch until the comparisons have taken a second, then
    so rarely that they take a hundredth of the time, and at the end.

    Args:
        but: Variables that are not compared.
    """

    def __init__(self, but: Iterable[Variable] = ()) -> None:
        self._but = list(but)
        self._budget = Budget(_ALLOWANCE)
        self._is_left_out = False

    def at_epoch_end(
        self, model: Model, epoch: int, process_set: ProcessSet
    ) -> None:
        """Compares after epoch number `epoch` if a comparison is due."""
        self._is_left_out = not self._budget.is_due()
        if not self._is_left_out:
            self._compare(model, f"after epoch {epoch + 1}", process_set)

    def at_end(self, model: Model, process_set: ProcessSet) -> None:
        """Compares at the end, unless that was done after the last epoch."""
        if self._is_left_out:
            self._compare(model, "at the end of the training", process_set)

    def _compare(
        self, model: Model, when: str, process_set: ProcessSet
    ) -> None:
        with self._budget.checking():
            periods = require_consistent(
                model,
                when,
                process_set,
                self._budget.wish(),
                but=self._but,
            )
        self._budget.agreed(max(1, periods))
