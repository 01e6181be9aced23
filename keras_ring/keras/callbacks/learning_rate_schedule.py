"""Sets the learning rate by the epoch, or by the batch."""

from __future__ import annotations

from collections.abc import Callable

from keras_ring._typing import Logs, Model, Optimizer
from keras_ring.keras import scope
from keras_ring.keras.fit import skipped_batches
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.optimizer.momentum_correction import MomentumCorrection


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Multiplies an initial learning rate by a factor that changes.

    Several such callbacks may be used, each for a range of epochs. With
    `steps_per_execution`, the learning rate changes once per execution, to
    the value of its first step.

    Args:
        initial_lr: Float, the learning rate that is multiplied.
        multiplier: Float, or a function from the epoch to a float. Without
            `staircase` the function is called for each batch, with fractions
            of epochs.
        start_epoch: Integer, the first epoch of the range. Defaults to `0`.
        end_epoch: Integer, the first epoch after the range. Defaults to
            `None`, which means that there is no end.
        staircase: Boolean, whether the learning rate changes between epochs
            only. Defaults to `True`.
        momentum_correction: Boolean. `SGD` and `RMSprop` keep past updates in
            their momentum with the learning rates of those updates. If
            `True`, the momentum is scaled when the learning rate changes, so
            that past gradients count as much as new ones. Defaults to `True`.
        steps_per_epoch: Integer, the number of batches of an epoch on this
            rank. Needed without `staircase` if Keras does not know it.
            Defaults to `None`, which means what Keras knows.

    Example:
    ```python
    callbacks = [
        kr.callbacks.LearningRateScheduleCallback(0.1, 1.0, end_epoch=30),
        kr.callbacks.LearningRateScheduleCallback(0.1, 0.1, start_epoch=30),
    ]
    ```
    """

    # A program may compute them from `kr.size()`, which is 1 in one that joins.
    shared_state: tuple[str, ...] = (
        *("initial_lr", "start_epoch", "end_epoch", "steps_per_epoch"),
    )

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if steps_per_epoch is not None and steps_per_epoch < 1:
            raise ValueError(
                "`steps_per_epoch` must be above 0. Received: "
                f"steps_per_epoch={steps_per_epoch}"
            )
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._multiplier = multiplier
        self._epoch = 0
        self._momentum: MomentumCorrection | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Checks that the learning rate can be set at all."""
        optimizer = self._optimizer()
        if not compat.has_settable_learning_rate(optimizer):
            raise ValueError(
                f"{type(self).__name__} sets the learning rate of the "
                "optimizer, which cannot be done for an optimizer that "
                "computes it: one with a `LearningRateSchedule`, a function, "
                "or several optimizers inside. Give the optimizer a float, or "
                "leave this callback away. Received: an optimizer of class "
                f"{type(optimizer).__name__}"
            )
        self.prepare_step(self.model)
        if not self.staircase and self.steps_per_epoch is None:
            steps = compat.num_steps(self.params)
            if not steps:
                raise ValueError(
                    f"{type(self).__name__} changes the learning rate within "
                    "an epoch, and the number of steps of an epoch is not "
                    "known. Set `steps_per_epoch`."
                )
            self.steps_per_epoch = steps

    def prepare_step(self, model: Model) -> None:
        """Changes what a training step does, before it is traced.

        Args:
            model: The `keras.Model` that is about to be trained.
        """
        if self.momentum_correction:
            optimizer = inner_optimizer(model.optimizer)
            self._momentum = MomentumCorrection(optimizer)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Sets the learning rate of the epoch."""
        self._epoch = epoch
        if self.staircase and self._is_in_range():
            self._set_learning_rate(epoch)

    def on_train_batch_begin(
        self, batch: int, logs: Logs | None = None
    ) -> None:
        """Sets the learning rate of the batch."""
        if not self.staircase and self._is_in_range():
            steps_per_epoch = self.steps_per_epoch or 1
            self._set_learning_rate(self._epoch + batch / steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Adds the learning rate to the logs."""
        if logs is not None:
            logs["learning_rate"] = compat.learning_rate(self._optimizer())

    def multiplier(self, epoch: float) -> float:
        """Returns the factor at `epoch`, which may be a fraction."""
        if callable(self._multiplier):
            return self._multiplier(epoch)
        return self._multiplier

    def _is_in_range(self) -> bool:
        return self._epoch >= self.start_epoch and (
            self.end_epoch is None or self._epoch < self.end_epoch
        )

    def _set_learning_rate(self, epoch: float) -> None:
        optimizer = self._optimizer()
        old = compat.learning_rate(optimizer)
        new = float(self.initial_lr * self.multiplier(epoch))
        compat.set_learning_rate(optimizer, new)
        if (
            self._momentum is None
            or old <= 0
            or new == old
            # No step uses the factor then, and the state is set later.
            or skipped_batches.is_skipping(self.model)
            or scope.current().catches_up
        ):
            return
        self._momentum.scale(new / old)

    def _optimizer(self) -> Optimizer:
        optimizer = self.model.optimizer
        return inner_optimizer(optimizer)
