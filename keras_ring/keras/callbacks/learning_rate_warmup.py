"""Raises the learning rate to that of a large batch, step by step."""

from __future__ import annotations

from keras_ring._typing import Logs
from keras_ring.core import topology
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.callbacks.learning_rate_schedule import (
    LearningRateScheduleCallback,
)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one rank to that of all ranks.

    With `n` ranks a step sees a batch `n` times as large, for which the
    learning rate is often made `n` times as high. That is too much for the
    first steps. This callback starts at `initial_lr / n` and raises the
    learning rate with each batch, in equal steps, to `initial_lr` at the end
    of epoch `warmup_epochs`. In a job of one rank it sets `initial_lr`.

    Args:
        initial_lr: Float, the learning rate after the warm-up, usually that
            of one rank times `kr.size()`.
        warmup_epochs: Number of epochs. Defaults to `5`.
        momentum_correction: Boolean, whether momentum is scaled with the
            learning rate. Defaults to `True`.
        steps_per_epoch: Integer, the number of batches of an epoch on this
            rank. Defaults to `None`, which means what Keras knows.
        verbose: Integer. If above 0, the lowest rank prints the learning rate
            at the end of the warm-up. Defaults to `0`.
        process_set: A `kr.ProcessSet`, whose ranks are the `n` that train the
            model. Defaults to all ranks.

    Example:
    ```python
    learning_rate = 0.01 * kr.size()
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(learning_rate)))
    model.fit(
        x, y,
        callbacks=[kr.callbacks.LearningRateWarmupCallback(learning_rate)],
    )
    ```
    """

    shared_state = (
        *LearningRateScheduleCallback.shared_state,
        "warmup_epochs",
    )

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        *,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if warmup_epochs < 1:
            raise ValueError(
                "`warmup_epochs` must be above 0. Received: "
                f"warmup_epochs={warmup_epochs}"
            )
        super().__init__(
            initial_lr,
            1.0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        self.process_set = process_set

    def multiplier(self, epoch: float) -> float:
        """Returns the factor at `epoch`, which may be a fraction."""
        # The last batch of the warm-up has the full learning rate.
        steps = self.warmup_epochs * (self.steps_per_epoch or 1)
        step = round(epoch * (self.steps_per_epoch or 1))
        done = min(1.0, step / (steps - 1)) if steps > 1 else 1.0
        first = 1.0 / self.process_set.size()
        return first + (1.0 - first) * done

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Completes the warm-up after its last epoch."""
        super().on_epoch_end(epoch, logs)
        if epoch != self.warmup_epochs - 1:
            return
        # With `steps_per_execution` the last batches had the learning rate of
        # an earlier one.
        self._set_learning_rate(self.warmup_epochs)
        if self.verbose > 0 and topology.rank() == self.process_set.ranks[0]:
            print(
                f"\nEpoch {epoch + 1}: the learning rate has reached "
                f"{self.initial_lr:g}."
            )
