"""Gives all ranks the state of a model on one rank."""

from __future__ import annotations

from collections.abc import Iterable

from keras_ring._typing import Model, Optimizer, Variable
from keras_ring.core.generations import num_admissions
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
)
from keras_ring.keras.agreement import shared_paths
from keras_ring.keras.agreement.catching_up import exchanges_nothing
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.keras.model import adapted_layers, model_optimizers, model_state
from keras_ring.keras.model.seeds import share_generator
from keras_ring.keras.model.synchronized_normalization import require_all_ranks
from keras_ring.keras.model.variables import share
from keras_ring.keras.optimizer import initial_values
from keras_ring.keras.optimizer.mixin import distributed_settings


def broadcast_model(
    model: Model,
    root_rank: int = 0,
    *,
    optimizers: Iterable[Optimizer] = (),
    fold_rank: bool = True,
    local_variables: Iterable[Variable] = (),
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the state of a model on one rank, to train from it.

    `kr.callbacks.BroadcastGlobalVariablesCallback` does this in `fit`; call it
    in a loop of your own. The state is that of the weights, the optimizers,
    the metrics, and the generators of random numbers: those of the layers, the
    model's own, and that of `keras.random`.

    Afterwards random numbers, such as dropout masks, differ between ranks and
    are the same in each run: the rank is folded into each seed, which becomes
    `seed XOR mix(index)`. `index` is the rank, counted from `root_rank`, and
    `mix` is the finalizer of MurmurHash3 for 32 bits, with `mix(0) = 0`. So
    `root_rank` keeps its seeds, no two ranks have the same, and calling this
    again gives the same seeds again.

    Layers that derive state from their weights (in `finalize_state`, such as
    `keras.layers.Normalization`) compute it again. Learned state outside of
    weights, such as a vocabulary, is compared.

    Args:
        model: A `keras.Model` that is built.
        root_rank: Integer, the rank whose state all ranks get. Defaults to
            `0`.
        optimizers: Optimizers that train the model and are not attributes of
            it.
        fold_rank: Boolean. If `False`, all ranks draw the random numbers of
            `root_rank`. Defaults to `True`.
        local_variables: Variables that each rank keeps as they are. Those
            that were registered as local with an optimizer are kept anyway.
        process_set: A `kr.ProcessSet`, whose ranks train the model. Defaults
            to all ranks.

    Raises:
        TypeError: If `model` is no `keras.Model`.
        ValueError: If `root_rank` is not a member, or the ranks have different
            models, or a layer with `synchronized=True` is trained by some of
            the ranks.
        ConsistencyError: If learned state outside of weights differs.

    Example:
    ```python
    kr.broadcast_model(model)
    ```
    """
    model_state.check_model(model, "broadcast_model")
    if exchanges_nothing(process_set):
        return
    require_all_ranks(model, process_set)
    found = model_optimizers.optimizers_of(model, optimizers)
    if any(distributed_settings(each) for each in found.values()):
        # Gradients will be matched by these paths.
        shared_paths.agree(
            model.variables, "model", "variables of the model", process_set
        )
    _build(model, found, process_set)
    local_variables = list(local_variables)
    initial_values.leave_out(local_variables, process_set)
    kept = {
        id(backend.storage(each))
        for each in (
            *local_variables,
            *model_optimizers.local_slots(model, found),
        )
    }
    seeds = compat.seed_variables(model)
    # `model.variables` may hold variables of metrics.
    of_metrics = compat.metrics_variables(model)
    variables = [*model.variables, *of_metrics, *seeds]
    for optimizer in found.values():
        variables.extend(compat.optimizer_variables(optimizer))
    shared = {
        id(v): v
        for v in variables
        if id(backend.storage(v)) not in kept
        and not model_optimizers.is_local(v, found)
    }
    if num_admissions():
        # Keras makes those of metrics in the first batch, which ranks that have
        # come in may not have had. `fit` resets them in each epoch.
        for variable in of_metrics:
            shared.pop(id(variable), None)
    operation = share(
        list(shared.values()),
        root_rank,
        process_set,
        folded=compat.own_seed_variables(model) if fold_rank else (),
    )
    if backend.is_graph_program():
        compat.run(operation)
    share_generator(root_rank, process_set, fold_rank=fold_rank)
    adapted_layers.require_same(model, process_set)
    adapted_layers.finalize(model, process_set)


def _build(
    model: Model, optimizers: dict[str, Optimizer], process_set: ProcessSet
) -> None:
    """Makes the variables of the same optimizers on all ranks."""
    model_optimizers.build_only_one(model, optimizers)
    if len(optimizers) > 1:
        of_ranks = allgather_object(
            model_optimizers.trained_indexes(model, optimizers),
            "optimizers",
            process_set,
        )
        wanted = model_optimizers.merged(of_ranks)
        model_optimizers.build_for(model, optimizers, wanted)
