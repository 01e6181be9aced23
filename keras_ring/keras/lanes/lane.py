"""Describes a lane: the module of what is different in Keras 2 or in Keras 3.

Its functions say themselves only what is not said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from keras_ring._typing import (
    Callback,
    Layer,
    Logs,
    Model,
    Operation,
    Optimizer,
    PyDataset,
    Structure,
    Variable,
)


class Lane(Protocol):
    """The functions that differ between Keras 2 and Keras 3."""

    @property
    def Dataset(self) -> Any:
        """The class of datasets that are indexed by batch."""

    @property
    def METRICS_RESULT_METHOD(self) -> str:
        """The method of a model that makes the results of its metrics.

        Keras calls it after each pass over the data and nowhere else.
        """

    @property
    def BACKUP_WRITES(self) -> tuple[str, ...]:
        """The methods of `BackupAndRestore` that write or delete files."""

    @property
    def COMPILED_METRICS(self) -> str:
        """The attribute of a model with what `compile` was given as metrics."""

    @property
    def AGGREGATIONS(self) -> str:
        """The advice of an error: how to declare the variable of a metric."""

    @property
    def PROGBAR_ARGUMENTS(self) -> dict[str, Any]:
        """The arguments with which a `ProgbarLogger` counts steps."""

    @property
    def TELLS_DIVISORS(self) -> bool:
        """Tells whether it is known what losses were divided by.

        If it is not, `weighted=True` is refused.
        """

    @property
    def UPDATES(self) -> str:
        """The method of an optimizer that updates all variables.

        It is called once in a step.
        """

    @property
    def SYNCHRONIZED(self) -> bool:
        """The value of `synchronized` of a `SyncBatchNormalization`."""

    @property
    def FIRST_EPOCH_OF_PYDATASET(self) -> int:
        """The first epoch of which Keras tells a dataset the end."""

    @property
    def BatchNormalization(self) -> Any:
        """A layer that calls `moments_of_all_ranks` unless a rank is alone."""

    def is_built(self, model: Model) -> bool:
        """Returns whether a model has all its weights.

        A layer that is made of other layers alone is not built if it is never
        called, for example a model whose `train_step` calls its parts. It has
        only the weights of its parts, so it counts as built.
        """

    def build_from_batch(
        self,
        model: Model,
        batch: Structure,
        train_step: Callable[[Structure], object] | None = None,
    ) -> None:
        """Builds a model, and its metrics, from the shapes of a batch.

        Args:
            model: A `keras.Model`.
            batch: A batch, as its `train_step` gets it.
            train_step: The original `train_step` of the model, if it is
                replaced now. Defaults to that of the model.
        """

    def declared_trainable(self, layer: Layer) -> list[Variable]:
        """Returns a layer's own weights that were created as trainable."""

    def metrics_variables(self, model: Model) -> list[Variable]:
        """Returns the state of a model's metrics."""

    def aggregation(self, variable: Variable) -> str:
        """Returns a metric variable's aggregation: "sum", "mean" or "none"."""

    def built_optimizer(
        self, optimizer: Optimizer, variables: Sequence[Variable]
    ) -> Optimizer:
        """Makes the variables of an optimizer if it has none; returns it."""

    def optimizer_variables(self, optimizer: Optimizer) -> list[Variable]:
        """Returns all variables of an optimizer."""

    def trained_variables(
        self, optimizer: Optimizer, candidates: Iterable[Variable]
    ) -> list[Variable]:
        """Returns the variables that an optimizer was built for, in that order.

        The list is empty if it was not built, or if any of the variables is not
        among the candidates.
        """

    def slots_of(
        self, optimizer: Optimizer, variables: Iterable[Variable]
    ) -> list[Variable]:
        """Returns the slot variables that an optimizer has for variables."""

    def is_optimizer(self, optimizer: Optimizer) -> bool:
        """Returns whether an object is an optimizer that has variables."""

    def has_settable_learning_rate(self, optimizer: Optimizer) -> bool:
        """Returns whether the learning rate can be changed between steps."""

    def learning_rate(self, optimizer: Optimizer) -> float:
        """Returns the present learning rate of an optimizer."""

    def set_learning_rate(self, optimizer: Optimizer, rate: float) -> None:
        """Sets the learning rate."""

    def momentums(self, optimizer: Optimizer) -> list[Variable]:
        """Returns the momentum variables that contain past learning rates."""

    def can_scale_in_step(self, optimizer: Optimizer) -> bool:
        """Returns whether momentum can be scaled in the next update.

        Otherwise it must be scaled at once.
        """

    def seed_variables(self, model: Model) -> list[Variable]:
        """Returns the states of the generators that a model draws from."""

    def own_seed_variables(self, model: Model) -> list[Variable]:
        """Returns the `seed_variables` whose state differs between ranks.

        If `keras.random` differs between ranks in steps alone, its state is not
        among them: between steps, all ranks must draw the same numbers from it.
        """

    def is_shared_seed(self, variable: Variable) -> bool:
        """Returns whether it is the state of `keras.random`, and shared."""

    def shared_seed(self) -> npt.NDArray[Any] | None:
        """Returns the value of the state of `keras.random`, or `None`."""

    def set_shared_seed(self, value: npt.NDArray[Any]) -> None:
        """Sets the state of `keras.random` to that of another rank."""

    def as_numpy(self, variable: Variable) -> npt.NDArray[Any]:
        """Returns the value of a variable, as an array."""

    def assign(self, variable: Variable, value: npt.ArrayLike) -> None:
        """Sets the value of a variable at once."""

    def run(self, operation: Operation) -> None:
        """Runs an operation of a program that has no eager execution."""

    def export_alike(self, made: type, exported: type) -> None:
        """Makes a class be saved under the public name of another one, if any.

        Args:
            made: The class that replaces the other.
            exported: The class that is found when a file is loaded.
        """

    def save_if_due(
        self,
        checkpoint: Callback,
        epoch: int,
        batch: int | None,
        logs: Logs,
        save: Callable[[Path], None],
    ) -> None:
        """Calls a function if a `ModelCheckpoint` decides to save now.

        Args:
            checkpoint: A `keras.callbacks.ModelCheckpoint`.
            epoch: Integer, the epoch that Keras passes.
            batch: Integer or `None`, the batch that Keras passes.
            logs: Dictionary, the logs that Keras passes.
            save: Callable, called with the path if the model is to be saved.
        """

    def num_steps(self, params: dict[str, Any] | None) -> int | None:
        """Returns the steps of an epoch, from a callback's `params`."""

    def num_batches(self, dataset: PyDataset) -> int | None:
        """Returns the number of batches of a `Dataset`, if it is finite."""

    def dataset_arguments(self, dataset: PyDataset) -> dict[str, Any]:
        """Returns the arguments for a `Dataset` to be read as `dataset` is."""

    def steps_per_execution(self, model: Model) -> int:
        """Returns the number of steps in one call of the training function."""

    def set_initial_epoch(self, model: Model, epoch: int | None) -> None:
        """Sets the epoch at which the `fit` that has just begun continues.

        Args:
            model: A `keras.Model`.
            epoch: Integer, the epoch, or `None` to reset it.
        """
