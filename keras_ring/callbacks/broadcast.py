"""Starts all ranks from the same state."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from keras_ring import basics
from keras_ring._names import variable_path
from keras_ring.functions import broadcast_variables, require_same
from keras_ring.optimizer import distributed_settings


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the state of one rank before the first step.

    The state is that of the model, its optimizer, its seed generators and its
    metrics. Weights that were loaded on one rank alone are the weights of all
    ranks afterwards.

    A model that has no weights yet, because its input shape is not known
    before it sees data, is built from the first batch, and the state is
    shared before the model is trained on that batch.

    Args:
        root_rank: Integer, the rank whose state all ranks get. Defaults to
            `0`.

    Example:
    ```python
    model.fit(x, y, callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()])
    ```
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self.root_rank = root_rank

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Shares the state, or arranges for it to be shared."""
        if basics.size() == 1:
            return
        if all(layer.built for layer in self.model._flatten_layers()):
            self._broadcast()
        else:
            self._broadcast_at_first_step()

    def _broadcast(self) -> None:
        model = self.model
        optimizer = model.optimizer
        if distributed_settings(optimizer) is not None:
            # The gradients will be matched by these names.
            require_same(
                "trainable_variables",
                "names of the trainable variables",
                [str(variable_path(v)) for v in model.trainable_variables],
            )
        variables = [*model.variables, *model.metrics_variables]
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            variables.extend(optimizer.variables)
        # `model.variables` may hold variables of metrics.
        unique = {id(variable): variable for variable in variables}
        broadcast_variables(unique.values(), self.root_rank)

    def _broadcast_at_first_step(self) -> None:
        """Puts the broadcast between the building of the model and its use.

        Keras builds such a model while it traces the first training step. So
        the step is replaced, for its first call, by one that has Keras build
        the model from the shapes of the batch, shares the state, and trains.
        """
        model = self.model
        train_step = model.train_step
        own_train_step = vars(model).get("train_step")

        def build_broadcast_and_train(batch: Any) -> Any:
            if model.train_step is build_broadcast_and_train:
                del model.train_step
                if own_train_step is not None:
                    model.train_step = own_train_step
                # Out of the graph that is being traced: done now, once, and
                # not a part of each step.
                with tf.init_scope():
                    model._symbolic_build(data_batch=batch)
                    self._broadcast()
            return train_step(batch)

        model.train_step = build_broadcast_and_train
        model.make_train_function(force=True)
