"""Starts all ranks from the same state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keras_ring._typing import Logs, Optimizer, Structure, Variable
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
)
from keras_ring.keras.agreement import same_batch, training_end
from keras_ring.keras.agreement.catching_up import exchanges_nothing
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model.consistency import EpochComparison
from keras_ring.keras.model.model_broadcast import broadcast_model
from keras_ring.keras.optimizer.local_updates import allow_local_updates


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the state of one rank before the first step.

    The state is that of the model, its optimizers, its metrics and its
    generators of random numbers. Weights that were loaded on one rank alone
    are the weights of all ranks afterwards. Random numbers, such as dropout
    masks, differ between ranks and are the same in each run: the rank is
    folded into each seed, as `kr.broadcast_model` explains.

    A model that has no weights yet, because its input shape is not known
    before it sees data, is built from the first batch, and the state is
    shared before the model is trained on that batch.

    It also detects mistakes that would otherwise go unnoticed, or make ranks
    wait for each other for ever, and makes them an error on all ranks: numbers
    of batches that differ, weights that differ at the end of an epoch (see
    `ConsistencyCheck`), and a training that ends on some ranks only. It warns
    if ranks train on the same first batch, because the data were not split.

    Args:
        root_rank: Integer, the rank whose state all ranks get. Defaults to
            `0`.
        device: String, where the broadcast is placed. Defaults to `""`, which
            leaves it to TensorFlow.
        local_variables: Variables that each rank keeps as they are, and that
            are not compared. Those that were registered as local with an
            optimizer need not be given. Defaults to `None`.
        check: Boolean, whether weights are compared at the ends of epochs:
            first of each epoch, later so rarely that the comparisons take a
            hundredth of the time, and of the last epoch. Defaults to `True`.
        fold_rank: Boolean. If `False`, all ranks draw the same random
            numbers, those of `root_rank`. Defaults to `True`.
        optimizers: Optimizers that train the model and are not attributes of
            it.
        process_set: A `kr.ProcessSet`, whose ranks train the model. Give it
            to the optimizer, too. `root_rank` must be one of its members.
            Defaults to all ranks.

    Example:
    ```python
    model.fit(x, y, callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()])
    ```
    """

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        local_variables: Iterable[Variable] | None = None,
        *,
        check: bool = True,
        fold_rank: bool = True,
        optimizers: Iterable[Optimizer] = (),
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        if not isinstance(device, str):
            raise ValueError(
                '`device` must be a string, such as "/cpu:0". Received: '
                f"device={device!r}. Whether weights are compared is "
                f"`check={device!r}`."
            )
        self.root_rank = root_rank
        self.device = device
        self.local_variables = list(local_variables or ())
        self.check = check
        self.fold_rank = fold_rank
        self.optimizers = list(optimizers)
        self.process_set = process_set
        self._epochs_begun = 0
        self._comparison = EpochComparison(self.local_variables)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Shares the state, or arranges for it to be shared."""
        self._epochs_begun = 0
        self._comparison = EpochComparison(self.local_variables)
        if exchanges_nothing(self.process_set):
            return
        training_end.require_same_steps(
            compat.num_steps(self.params), self.process_set
        )
        if compat.is_built(self.model):
            self._broadcast()
        else:
            self._broadcast_at_first_step()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Raises an error on all ranks unless all of them go on."""
        if self._epochs_begun:
            training_end.require_same_end(True, self.process_set)
        else:
            same_batch.watch(
                self.model,
                self.process_set,
                verbose=bool((self.params or {}).get("verbose")),
            )
        self._epochs_begun += 1

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the weights."""
        if self.check:
            self._comparison.at_epoch_end(self.model, epoch, self.process_set)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Raises an error on all ranks if one of them goes on."""
        if self._epochs_begun:
            training_end.require_same_end(False, self.process_set)
            if self.check:
                self._comparison.at_end(self.model, self.process_set)

    def _broadcast(self) -> None:
        with backend.on_device(self.device):
            broadcast_model(
                self.model,
                self.root_rank,
                optimizers=self.optimizers,
                fold_rank=self.fold_rank,
                local_variables=self.local_variables,
                process_set=self.process_set,
            )

    def _broadcast_at_first_step(self) -> None:
        """Inserts the broadcast between building and training the model.

        Keras builds a model without an input shape while it traces the first
        training step. So the first call of the step goes to another function,
        which makes Keras build the model from the shapes of the batch, shares
        the state, and trains.
        """
        model = self.model
        train_step = model.train_step
        own_train_step = vars(model).get("train_step")

        # With JAX, a step has the state of the model before the batch.
        def build_broadcast_and_train(*arguments: Structure) -> Any:
            if model.train_step is build_broadcast_and_train:
                del model.train_step
                if own_train_step is not None:
                    model.train_step = own_train_step
                # The trace that builds the model updates nothing.
                with allow_local_updates():
                    compat.build_from_batch(model, arguments[-1], train_step)
                # Outside of the graph that is being traced: this runs once,
                # now, and does not become a part of each step.
                with backend.outside_of_traces():
                    self._broadcast()
            return train_step(*arguments)

        model.train_step = build_broadcast_and_train
        model.make_train_function(force=True)
