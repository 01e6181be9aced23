"""Where Keras 2 reads batches, makes steps of them, and results of those.

`keras3_steps` has the same names.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring._keras import chance, layer_functions
from keras_ring._keras.batch_source import (
    Shortened,
    Source,
    hook_passes,
    static_rows,
    training_data,
)
from keras_ring._keras.keras2_functions import (
    hook_functions,
    is_by_rows,
    mask_of,
    set_mask,
)
from keras_ring._keras.keras2_functions import is_of_keras as _is_of_keras
from keras_ring._keras.patching import patch_once, replaced
from keras_ring._keras.which import keras
from keras_ring._typing import (
    Callback,
    Dataset,
    Model,
    Structure,
    Tensor,
)

__all__ = ["hook_functions", "is_by_rows", "mask_of", "set_mask"]


def _module(name: str) -> Any:
    """Returns a module of Keras' own, of whichever package it is in."""
    return importlib.import_module(f"{keras.__name__}.src.{name}")


_data_adapter = _module("engine.data_adapter")
_base_layer = _module("engine.base_layer")
_backend = _module("backend")
_data_utils = _module("utils.data_utils")

# That of TensorFlow 1, too.
BATCH_NORMALIZATION = _module(
    "layers.normalization.batch_normalization"
).BatchNormalizationBase


class BatchIterator:
    """The `DataHandler` that Keras makes for one call.

    Args:
        handler: Keras' own.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    @property
    def dataset(self) -> Dataset:
        """The batches: of arrays, those of all epochs one after another."""
        return self._handler._dataset

    @dataset.setter
    def dataset(self, dataset: Dataset) -> None:
        self._handler._dataset = dataset

    def source(self) -> Source:
        """Returns what the batches come from."""
        adapter = self._handler._adapter
        count = self._handler._inferred_steps
        if isinstance(adapter, _data_adapter.KerasSequenceAdapter):
            return Source("PyDataset", count)
        if isinstance(adapter, _data_adapter.GeneratorDataAdapter):
            return Source("generator", count)
        if isinstance(adapter, _data_adapter.DatasetAdapter):
            return Source("dataset", count, None, static_rows(self.dataset))
        size, rest = adapter.batch_size(), adapter.partial_batch_size()
        samples = adapter.get_size() * size
        if rest:
            samples += rest - size
        return Source("arrays", count, samples, size)

    def set_num_batches(self, count: int) -> None:
        """Has an epoch read another number of batches, from the first on."""
        self._handler._steps_per_epoch = count
        self._handler._inferred_steps = count

    def divide_num_batches(self, parts: int) -> None:
        """Has an epoch read a part of the batches, rounded up."""
        handler = self._handler
        for name in ("_steps_per_epoch", "_inferred_steps"):
            steps = getattr(handler, name)
            if steps is not None and steps > 0:
                setattr(handler, name, -(-steps // parts))
        size = handler._adapter.get_size()
        if size is not None:
            # Asked for again at each epoch.
            handler._adapter = Shortened(handler._adapter, -(-size // parts))

    def num_executed_batches(self) -> int | None:
        """Returns how many batches one pass reads, `None` if nobody knows."""
        known = (self._handler._inferred_steps, self.num_batches_of_data)
        return min((n for n in known if n is not None), default=None)

    @property
    def num_batches_of_data(self) -> int | None:
        """How many batches there are, `None` if nobody knows, or no end."""
        adapter = self._handler._adapter
        count: int | None = adapter.get_size()
        if count is None and isinstance(adapter, _data_adapter.DatasetAdapter):
            found = int(adapter.get_dataset().cardinality())
            count = found if found >= 0 else None
        return count


def hook_batches(
    made: Callable[[BatchIterator], Any],
    begun: Callable[[Any], None],
    purpose: str,
) -> None:
    """Has functions see the `DataHandler` of each call of `fit` and its like.

    Args:
        made: Called with it when it is made, before it is read. It may change
            what it reads.
        begun: Called with what `made` has returned when a pass over the data
            is about to begin.
        purpose: String, what for.
    """
    handler = _data_adapter.DataHandler
    hook_passes(
        handler, "enumerate_epochs", BatchIterator, made, begun, purpose
    )


def hook_train_step(
    around: Callable[
        [Model, Callable[[Structure], Any]], Callable[[Structure], Any]
    ],
    purpose: str,
) -> None:
    """Has a function stand around the training step of each model.

    Args:
        around: Takes the model and its `train_step`; returns what Keras calls
            in its place.
        purpose: String, what for.
    """

    def around_make(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_function(self: Model, force: bool = False) -> Any:
            if self.train_function is not None and not force:
                return make(self, force)
            train = make(self, force)

            # Keras looks `train_step` up whenever it traces.
            def train_on_ranks(*args: Any, **kwargs: Any) -> Any:
                with _another_train_step(self, around):
                    return train(*args, **kwargs)

            self.train_function = train_on_ranks
            return train_on_ranks

        return make_function

    patch_once(keras.Model, "make_train_function", around_make, purpose)


@contextlib.contextmanager
def _another_train_step(
    model: Model,
    around: Callable[
        [Model, Callable[[Structure], Any]], Callable[[Structure], Any]
    ],
) -> Iterator[None]:
    own = vars(model).get("train_step")
    train_step = model.train_step

    def step(batch: Structure) -> Any:
        return around(model, train_step)(batch)

    # So that AutoGraph calls it as it is, and is not kept out of the layers.
    step.autograph_info__ = {}  # type: ignore[attr-defined]
    # Past the model's own `__setattr__`, which tracks what is set.
    object.__setattr__(model, "train_step", step)
    try:
        yield
    finally:
        if own is None:
            object.__delattr__(model, "train_step")
        else:
            object.__setattr__(model, "train_step", own)


# `Dropout` and its like draw by the seed of the graph, too.
numbers_of_rank = chance.graph_seed


def hook_chance(purpose: str) -> None:
    """Leaves Keras 2 as it is: between steps, all ranks draw the same."""
    del purpose


def hook_means(
    counts: Callable[[Any, Structure, Structure], tuple[Structure, Structure]],
    purpose: str,
) -> None:
    """Has a function say what a value counts that a metric is a mean or sum of.

    Args:
        counts: Takes the metric, and the values and weights that it is given;
            returns those that it is updated with.
        purpose: String, what for.
    """

    def around_update(update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def update_state(
            self: Any, values: Tensor, sample_weight: Tensor = None
        ) -> Any:
            values, sample_weight = counts(self, values, sample_weight)
            return update(self, values, sample_weight=sample_weight)

        return update_state

    for metric in (keras.metrics.Mean, keras.metrics.Sum):
        patch_once(metric, "update_state", around_update, purpose)


def is_own_train_step(model: Model) -> bool:
    """Whether a model has a step of its own, or a part of one."""
    return any(
        getattr(type(model), name) is not getattr(keras.Model, name)
        for name in ("train_step", "compute_loss", "compute_metrics")
    )


def is_own_test_step(model: Model) -> bool:
    """Whether a model has a `test_step` or `compute_metrics` of its own."""
    return any(
        getattr(type(model), name) is not getattr(keras.Model, name)
        for name in ("test_step", "compute_metrics")
    )


def has_own_metrics(model: Model) -> bool:
    """Whether a model has a `compute_metrics` of its own, for all rows.

    Never: metrics of Keras 2 do not tell that they are updated in it.
    """
    del model
    return False


def read_nothing(wanted: dict[str, Any]) -> None:
    """Makes the `DataHandler` that `fit` would.

    Args:
        wanted: The arguments of `fit` by name.
    """
    data = training_data(wanted, _data_adapter.train_validation_split)
    _data_adapter.DataHandler(**data)


def add_callbacks(callbacks: Any, ours: list[Callback]) -> None:
    """Puts callbacks before those of a list that is made already.

    Args:
        callbacks: A `keras.callbacks.CallbackList`.
        ours: The callbacks.
    """
    for each in ours:
        each.set_model(callbacks.model)
        each.set_params(getattr(callbacks, "params", None))
    callbacks.callbacks[:0] = ours
    # Found out when the list was made.
    callbacks._should_call_train_batch_hooks = True


@contextlib.contextmanager
def without_chance(rows: chance.Rows | None) -> Iterator[None]:
    """Has what draws random numbers return what does not depend on chance.

    What NumPy draws is left as it is.

    Args:
        rows: Of which rows of a batch the numbers are. `None` for constants.
    """
    drawn = chance.Drawn(chance.numbers(rows), keras.backend.floatx)
    of_any, dropout = drawn.of_tensorflow(), {"dropout": drawn.dropout}
    of_layers: dict[str, Callable[..., Tensor]] = {
        "random_normal": drawn.normal,
        "truncated_normal": drawn.normal,
        "random_uniform": drawn.uniform,
        **dropout,
    }
    with contextlib.ExitStack() as stack:
        for owner, functions in (
            (
                _backend.RandomGenerator,
                {name: _method(each) for name, each in of_layers.items()},
            ),
            (tf.random, of_any),
            (tf.nn, dropout),
            # What Keras knows TensorFlow as.
            (tf.compat.v2.random, of_any),
            (tf.compat.v2.nn, dropout),
        ):
            stack.enter_context(replaced(owner, functions))
        yield


def _method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def called(self: object, *args: Any, **kwargs: Any) -> Tensor:
        del self
        return function(*args, **kwargs)

    return called


def has_known_losses(model: Model) -> bool:
    """Whether what a model was compiled with needs no check.

    What is not Keras' own is computed of all rows (`hook_functions`).
    """
    del model
    return True


# What a functional model makes of calls that are not layers of Keras, and of
# `add_loss`: any computation.
_ANY = (
    keras.layers.Lambda,
    _base_layer.AddLoss,
    _base_layer.TensorFlowOpLayer,
)
_ANY_MODULES = tuple(
    f"{keras.__name__}.src.{name}"
    for name in ("layers.core.tf_op_layer", "layers.core.lambda_layer")
)


def has_known_layers(model: Model) -> bool:
    """Whether a model is made of Keras' layers, and of its functions, alone.

    These compute each row by itself, but for `BatchNormalization`.
    """
    return all(
        _is_of_keras(type(layer))
        and not isinstance(layer, _ANY)
        and type(layer).__module__ not in _ANY_MODULES
        and layer_functions.are_known(layer)
        for layer in model._flatten_layers()
    )


def hook_downloads(
    alone: Callable[[str], contextlib.AbstractContextManager[None]],
    purpose: str,
) -> None:
    """Has a context stand around what `keras.utils.get_file` does.

    Args:
        alone: Takes the directory that Keras keeps files in; returns the
            context.
        purpose: String, what for.
    """
    get_file = _data_utils.get_file

    def around(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_alone(*args: Any, **kwargs: Any) -> Any:
            with alone(_backend._keras_dir):
                return get(*args, **kwargs)

        return get_alone

    # Each dataset of Keras has a name of its own for it.
    for module in list(sys.modules.values()):
        if vars(module).get("get_file") is get_file:
            patch_once(module, "get_file", around, purpose)
