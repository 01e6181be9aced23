"""Resumes an interrupted training at the step that it had reached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy.typing as npt

from keras_ring._typing import Logs, Model, Optimizer, Structure
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.checkpoint import background_write, training_state
from keras_ring.keras.data import epochs
from keras_ring.keras.fit import skipped_batches
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model import model_state


class BackupAndRestore(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves the state of training, and resumes from it in the next run.

    It works as Keras' callback of this name, with these differences. Rank 0
    writes, and all ranks resume at the same epoch and step. With `save_freq`
    in steps, the run resumes at that very step: the batches of the epoch that
    were trained on before are read and skipped, and metrics and accumulated
    gradients are restored. Files are written atomically and verified, see
    `kr.checkpoint.save`.

    With the same ranks and the same data in the same order, the run ends with
    the bits of a run that was not interrupted. The order is the same for what
    `kr.data.shard(..., shuffle=True)` returns from a `tf.data.Dataset` or a
    `PyDataset`. It is not if `fit` shuffles arrays: set `shuffle=False`. An
    epoch must read its data from the start, so `steps_per_epoch`, if it is
    set, must be the number of batches.

    State that differs between ranks is restored on each rank, see
    `kr.checkpoint.save`. With another number of ranks, metrics and accumulated
    gradients start anew.

    The state of other callbacks, such as the patience of `EarlyStopping`, is
    not saved. While batches are skipped, callbacks are called as if the model
    were trained on them. But `kr.callbacks.ModelCheckpoint` saves nothing, and
    `kr.callbacks.RankZeroOnly` does not call its callback for these batches:
    the previous run has done so.

    Args:
        backup_dir: Path of a directory, for this training only.
        save_freq: `"epoch"`, or an integer, the number of steps between two
            saves. Defaults to `"epoch"`, which saves when the next epoch
            begins, so that all callbacks have done what they do at the end
            of the last one.
        double_checkpoint: Boolean, whether to keep the last two checkpoints,
            so that one is left if the disk damages the other. Defaults to
            `True`.
        delete_checkpoint: Boolean, whether to delete the checkpoints when the
            training has ended. Defaults to `True`.
        keep: Integer, the number of checkpoints to keep. Defaults to `None`,
            which means that `double_checkpoint` decides.
        optimizers: Optimizers that train the model and are not attributes of
            it.
        asynchronous: Boolean. If `True`, rank 0 copies the state and writes it
            in another thread while the training goes on. If a write fails, it
            is an error on all ranks within the next steps. Defaults to
            `True`; `False` saves the memory of the copy.
        copy_dir: Path of a second directory, to which each checkpoint is
            copied, and from which it is restored if `backup_dir` has lost it.
            Defaults to `None`.

    Example:
    ```python
    callbacks = [kr.callbacks.BackupAndRestore("backup", save_freq=500)]
    ```
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = True,
        delete_checkpoint: bool = True,
        *,
        keep: int | None = None,
        optimizers: Iterable[Optimizer] = (),
        asynchronous: bool = True,
        copy_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ValueError(
                "`backup_dir` must be the path of a directory. Received: "
                f"backup_dir={backup_dir!r}"
            )
        if save_freq != "epoch" and not (
            isinstance(save_freq, int) and save_freq >= 1
        ):
            raise ValueError(
                '`save_freq` must be "epoch" or an integer above 0. Received: '
                f"save_freq={save_freq!r}"
            )
        if keep is not None and keep < 1:
            raise ValueError(
                f"`keep` must be at least 1. Received: keep={keep}"
            )
        self.backup_dir = backup_dir
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self.keep = keep or (2 if double_checkpoint else 1)
        self.optimizers = list(optimizers)
        self.asynchronous = asynchronous
        self.copy_dir = copy_dir
        self._step = 0  # batches trained on, in this run and those before
        self._step_saved: int | None = None
        self._epoch = 0
        self._batch = 0  # batches trained on in this epoch
        self._resumed: _Resumed | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Restores the state, if there is one."""
        self._step, self._step_saved, self._resumed = 0, None, None
        manifest = training_state.restore(
            self.model,
            self.backup_dir,
            optimizers=self.optimizers,
            copy_dir=self.copy_dir,
        )
        if manifest is None:
            return
        progress = manifest["progress"]
        if progress is None:
            raise ValueError(
                f"{self.backup_dir} has a checkpoint of `kr.checkpoint.save`. "
                "Give `BackupAndRestore` a directory of its own."
            )
        self._step = self._step_saved = manifest["step"]
        compat.set_initial_epoch(self.model, progress["epoch"])
        epochs.resume_at(progress["epoch"])
        self._resumed = _Resumed(
            self.model, self.optimizers, progress["batch"], manifest["local"]
        )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves the state after the last epoch; may go on within this one."""
        self._epoch, self._batch = epoch, 0
        if self._resumed is not None:
            if self._resumed.batches:
                self._resumed.skip_batch()
            else:
                self._resumed.assign_own()
                self._resumed = None
        elif self.save_freq == "epoch":
            self._save()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Saves the state, if it is time to."""
        done = batch + 1
        if self._resumed is not None:
            self._batch = done
            if done >= self._resumed.batches:
                # Now, because later callbacks have not yet been called.
                self._resumed.train()
                self._resumed.assign()
                self._resumed = None
            return
        background_write.look()
        self._step += done - self._batch
        self._batch = done
        if isinstance(self.save_freq, int):
            last = self._step_saved or 0
            if self._step - last >= self.save_freq:
                self._save()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Deletes what was saved, or saves the end."""
        compat.set_initial_epoch(self.model, None)
        if self.delete_checkpoint:
            training_state.remove_all(self.backup_dir, self.copy_dir)
        elif self.save_freq == "epoch" and self._step != self._step_saved:
            self._epoch, self._batch = self._epoch + 1, 0
            self._save()
        background_write.wait()

    def _save(self) -> None:
        if self._step in (0, self._step_saved):
            return
        training_state.save(
            self.model,
            self.backup_dir,
            self._step,
            keep=self.keep,
            progress={"epoch": self._epoch, "batch": self._batch},
            with_local_state=True,
            optimizers=self.optimizers,
            asynchronous=self.asynchronous,
            copy_dir=self.copy_dir,
        )
        self._step_saved = self._step


class _Resumed:
    """The state to resume from, until the training has reached that step.

    Args:
        model: A `keras.Model` whose state was restored.
        optimizers: Optimizers that are not attributes of the model.
        batches: Integer, the number of batches of the epoch to skip.
        local: The bytes of `local_variables`, or `None`.
    """

    def __init__(
        self,
        model: Model,
        optimizers: list[Optimizer],
        batches: int,
        local: list[npt.NDArray[Any]] | None,
    ) -> None:
        self.batches = batches
        self._model = model
        self._local = local
        self._train: Any = None
        # Callbacks may change the state until the training resumes: all of it
        # while batches are skipped, and this rank's own part at the start.
        self._variables = model_state.state_variables(model, optimizers)
        if not batches:
            self._variables = [
                self._variables[index]
                for index in model_state.owned_variables(model, optimizers)
            ]
        self._state = model_state.as_arrays(self._variables)
        if batches % compat.steps_per_execution(model):
            raise ValueError(
                f"The training was saved after batch {batches} of an epoch, "
                "and cannot go on from there with steps_per_execution="
                f"{compat.steps_per_execution(model)}. Use the value of the "
                "run before."
            )

    def skip_batch(self) -> None:
        """Makes Keras read the next batches without training on them."""
        model = self._model
        self._train = model.train_function
        passed = 0

        def skip_batch(run: Run, iterator: Iterator[Structure]) -> Logs:
            del run  # trains
            nonlocal passed
            for _ in range(compat.steps_per_execution(model)):
                batch = next(iterator)
                if passed == 0:
                    # Metrics have no variables before the first batch.
                    compat.build_from_batch(model, batch)
                    self._assign_local()
                passed += 1
            logs: Logs = model.get_metrics_result()
            return logs

        model.train_function = skipped_batches.skipping(
            backend.replaced_step(model, self._train, skip_batch)
        )

    def train(self) -> None:
        """Makes Keras train on the next batches again."""
        self._model.train_function = self._train

    def assign(self) -> None:
        """Sets the state to what it was after the last batch."""
        self._assign_state()
        self._assign_local()

    def assign_own(self) -> None:
        """Sets the state of this rank alone, and accumulated gradients."""
        self._assign_state()
        if self._local is not None:
            count = len(model_state.accumulators(self._model))
            model_state.assign_bytes(
                model_state.accumulators(self._model), self._local[:count]
            )

    def _assign_state(self) -> None:
        for variable, array in zip(self._variables, self._state, strict=True):
            variable.assign(array)

    def _assign_local(self) -> None:
        variables = model_state.local_variables(self._model)
        if self._local is not None and len(self._local) == len(variables):
            model_state.assign_bytes(variables, self._local)
