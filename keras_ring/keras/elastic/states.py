"""The state of a training that its ranks share, beside its program.

The names and the arguments are those of Horovod's `hvd.elastic`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Model, Optimizer, Variable
from keras_ring.core import arrays, generations, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.core.reduce_ops import Max
from keras_ring.keras.backends import backend
from keras_ring.keras.elastic import positions
from keras_ring.keras.lanes import compat
from keras_ring.keras.model.model_broadcast import broadcast_model
from keras_ring.keras.model.variables import broadcast_variables
from keras_ring.keras.optimizer import initial_values


class HostsUpdatedInterrupt(Exception):
    """The ranks of the job are others, or are about to be.

    `State.check_host_updates` raises it, and `kr.elastic.run` handles it.

    Attributes:
        skip_sync: Boolean, whether all ranks have the state: some were lost,
            and none come in.
    """

    def __init__(self, *, skip_sync: bool = False) -> None:
        super().__init__("the ranks of the job are others, or about to be")
        self.skip_sync = skip_sync


class State:
    """The state of a training, which a function of `kr.elastic.run` is given.

    Subclasses implement `save`, `restore` and `sync`.
    """

    def __init__(self) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []
        # That which all ranks have agreed on.
        self._generation: int | None = None
        # Whether the last call did not raise an exception that was due.
        self._is_put_off = False

    def register_reset_callbacks(
        self, callbacks: Iterable[Callable[[], None]]
    ) -> None:
        """Adds functions to call when the ranks of the job have changed.

        They may set what depends on `kr.size()`, such as the learning rate.

        Args:
            callbacks: Functions without arguments.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls `reset`, and the functions of `register_reset_callbacks`."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Calls `save`, and then `check_host_updates`.

        Raises:
            HostsUpdatedInterrupt: On all ranks, if the job has lost ranks, or
                others are to come in.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises an exception if the ranks of the job change.

        All ranks must call this after the same step. Without an elastic job it
        does nothing. After the last batch of an epoch of `kr.data.batches` it
        leaves that to the next call.

        Raises:
            HostsUpdatedInterrupt: On all ranks, if the job has lost ranks, or
                others are to come in.
        """
        if not (topology.is_initialized() and topology.is_elastic()):
            return
        before, num_waiting = self._generation, self.agree_on_generation()
        if not num_waiting and before in (None, self._generation):
            return
        # The next loop over the data would begin another epoch.
        self._is_put_off = not self._is_put_off and positions.are_at_end()
        if self._is_put_off:
            self._generation = before
            return
        raise HostsUpdatedInterrupt(skip_sync=not num_waiting)

    def agree_on_generation(self) -> int:
        """Notes the newest generation that any rank knows of.

        Returns:
            The number of processes that wait to come in.
        """
        if not topology.is_elastic():
            return 0
        known = [generations.num_waiting(), topology.topology().generation]
        num_waiting, self._generation = map(
            int,
            arrays.allreduce(
                np.array(known, np.int64), Max, name="elastic/host_updates"
            ),
        )
        return num_waiting

    def save(self) -> None:
        """Keeps the present state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the state that was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0. All ranks must call this."""
        raise NotImplementedError

    def reset(self) -> None:
        """Prepares this rank for others; by default there is nothing to do."""


class ObjectState(State):
    """Values of a training, as attributes.

    Args:
        **kwargs: The attributes and their first values. They must be objects
            that `pickle` can write.

    Example:
    ```python
    state = kr.elastic.ObjectState(epoch=0, best_loss=None)
    ```
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._saved = kwargs
        self._set_attributes()

    def save(self) -> None:
        """Keeps the values of the attributes in memory."""
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        """Gives the attributes the values that were kept."""
        self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self) -> None:
        """Gives all ranks the attributes of rank 0."""
        self._saved = broadcast_object(
            self._values(), 0, name="elastic/attributes"
        )
        self._set_attributes()

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved}


class _VariablesState(ObjectState):
    """Variables of a training, and values as attributes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._copies: list[npt.NDArray[Any]] = []

    def variables_now(self) -> list[Variable]:
        """Returns the variables of the state."""
        raise NotImplementedError

    def share_variables(self) -> None:
        """Gives all ranks the variables of rank 0."""
        raise NotImplementedError

    def save(self) -> None:
        """Keeps the variables and the attributes in memory."""
        variables = self.variables_now()
        self._copies = [np.array(compat.as_numpy(each)) for each in variables]
        super().save()

    def restore(self) -> None:
        """Gives variables and attributes the values that were kept."""
        if self._copies:
            variables = self.variables_now()
            for variable, value in zip(variables, self._copies, strict=True):
                compat.assign(variable, value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the variables and the attributes of rank 0."""
        if topology.is_initialized():
            self.share_variables()
            initial_values.note_equal(self.variables_now(), global_process_set)
        super().sync()
        self.save()


class TensorFlowState(_VariablesState):
    """Variables of a training, and values as attributes.

    Args:
        variables: List of variables.
        session: `None`; sessions of TensorFlow 1 are not supported.
        **kwargs: As in `ObjectState`.

    Raises:
        NotImplementedError: If there is a session.

    Example:
    ```python
    variables = [*model.variables, *optimizer.variables]
    state = kr.elastic.TensorFlowState(variables=variables, step=0)
    ```
    """

    def __init__(
        self,
        variables: Iterable[Variable] | None = None,
        session: object = None,
        **kwargs: Any,
    ) -> None:
        if session is not None or backend.is_graph_program():
            raise NotImplementedError(
                "`kr.elastic` is for programs with eager execution. "
                f"Received: session={session!r}"
            )
        self._variables = list(variables or ())
        super().__init__(**kwargs)

    def variables_now(self) -> list[Variable]:
        """Returns the variables."""
        return self._variables

    def share_variables(self) -> None:
        """Gives all ranks the variables of rank 0."""
        broadcast_variables(self._variables, 0)


class TensorFlowKerasState(_VariablesState):
    """A model, its optimizer, and values as attributes.

    Args:
        model: A `keras.Model` that is built.
        optimizer: The optimizer that trains it. Defaults to `model.optimizer`.
        backend: Ignored, for programs of Horovod.
        **kwargs: As in `ObjectState`.

    Raises:
        ValueError: If the model is not built.

    Example:
    ```python
    state = kr.elastic.TensorFlowKerasState(model, optimizer, step=0)
    ```
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer | None = None,
        backend: object = None,
        **kwargs: Any,
    ) -> None:
        if not compat.is_built(model):
            raise ValueError(
                "The model must be built before it can be shared: call "
                f"`model.build(input_shape)`. Received: {model!r}"
            )
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        super().__init__(**kwargs)

    def variables_now(self) -> list[Variable]:
        """Returns the variables of the model and of its optimizer."""
        variables = list(self.model.variables)
        if self.optimizer is not None:
            variables += compat.optimizer_variables(self.optimizer)
        return list({id(each): each for each in variables}.values())

    def share_variables(self) -> None:
        """Gives all ranks the model and the optimizer of rank 0."""
        others = [] if self.optimizer is None else [self.optimizer]
        broadcast_model(self.model, 0, optimizers=others)


class KerasState(TensorFlowKerasState):
    """The same as `TensorFlowKerasState`, by its shorter name.

    Args:
        model: As in `TensorFlowKerasState`, as all arguments.

    Example:
    ```python
    state = kr.elastic.KerasState(model, batch=0, epoch=0)
    ```
    """
