"""Learning rate schedules."""

from __future__ import annotations

from typing import Any

from keras_ring._typing import Tensor
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import keras


@keras.saving.register_keras_serializable(package="keras_ring")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule that raises the learning rate linearly to another schedule.

    In step `i` of the warm-up, counted from 0, the learning rate is
    `(i + 1) / warmup_steps` of that of the other schedule. So it is above 0 in
    the first step, and has its full value in the last step of the warm-up. The
    other schedule is called with the step since the start of the training,
    including the warm-up.

    To load a saved model with this schedule in its optimizer, `import
    keras_ring` first, as for a custom schedule.

    Args:
        schedule_or_lr: Float, or a
            `keras.optimizers.schedules.LearningRateSchedule`.
        warmup_steps: Integer, the number of steps. `0` for no warm-up.
        name: String, the name of the schedule. Defaults to `"Warmup"`.

    Raises:
        ValueError: If `warmup_steps` is not an integer of at least 0.

    Example:
    ```python
    schedule = keras.optimizers.schedules.CosineDecay(0.1 * kr.size(), 10_000)
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(kr.schedules.Warmup(schedule, 500))
    )
    ```
    """

    def __init__(
        self, schedule_or_lr: Any, warmup_steps: int, name: str = "Warmup"
    ) -> None:
        super().__init__()
        schedule = schedule_or_lr
        if not isinstance(
            schedule, keras.optimizers.schedules.LearningRateSchedule
        ):
            schedule = float(schedule)
        if not isinstance(warmup_steps, int) or warmup_steps < 0:
            raise ValueError(
                "`warmup_steps` must be an integer, 0 or more. Received: "
                f"warmup_steps={warmup_steps!r}"
            )
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.name = name

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate of a step."""
        rate = self.schedule(step) if callable(self.schedule) else self.schedule
        rate = backend.cast(rate, "float32")
        if self.warmup_steps == 0:
            return rate
        done = (backend.cast(step, "float32") + 1.0) / self.warmup_steps
        return rate * backend.ops.minimum(done, 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, for saving."""
        schedule = self.schedule
        if callable(schedule):
            schedule = keras.saving.serialize_keras_object(schedule)
        return {
            "schedule_or_lr": schedule,
            "warmup_steps": self.warmup_steps,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Warmup:
        """Returns a schedule from the result of `get_config`."""
        schedule = config["schedule_or_lr"]
        if isinstance(schedule, dict):
            schedule = keras.saving.deserialize_keras_object(schedule)
        return cls(**{**config, "schedule_or_lr": schedule})
