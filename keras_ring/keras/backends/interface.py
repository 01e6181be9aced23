"""Describes a backend: what Keras code asks of a framework.

Its functions say themselves only what is not said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from keras_ring._typing import (
    DType,
    Gradient,
    Graph,
    Logs,
    Model,
    Operation,
    Structure,
    Tensor,
    Variable,
)
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import ReduceOp
from keras_ring.core.reduction_call import ReductionCall

Function = TypeVar("Function", bound=Callable[..., Any])
Run: TypeAlias = Callable[[Any], Logs]
"""Trains on the next batches of an iterator, and returns logs."""


class EarlyReducer(Protocol):
    """Reduces gradients while the backward pass computes further ones."""

    def completed(
        self, gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[Gradient]:
        """Reduces gradients that were computed before it was made.

        Returns:
            A list like `gradients`, with zeros for those that only other ranks
            have.
        """

    def has_reduced(self, gradient: Gradient, variable: Variable) -> bool:
        """Returns whether a gradient of a variable is that of all ranks."""

    def end_step(self) -> None:
        """Begins anew after an update."""

    def close(self) -> None:
        """Reduces nothing from now on."""


class Backend(Protocol):
    """The functions of a framework that Keras code needs."""

    @property
    def Compression(self) -> Any:
        """The formats of tensors on the wire: `none`, `fp16` and `bf16`."""

    @property
    def ops(self) -> Any:
        """Functions of tensors, with the names and arguments of `keras.ops`.

        Beside these: `divide_no_nan(a, b)`, which is 0 where `b` is 0.
        """

    # --- Where code runs ---

    def name(self) -> str:
        """Returns the name of the framework."""

    def version(self) -> str:
        """Returns the version of the framework."""

    def is_eager(self) -> bool:
        """Returns whether tensors of the caller have values already.

        If not, a function is being traced, or a graph is made.
        """

    def is_graph_program(self) -> bool:
        """Returns whether the program has switched off eager execution."""

    def is_compiled(self) -> bool:
        """Returns whether the code that is traced is compiled by XLA.

        If so, sizes of tensors must not depend on values.
        """

    def waits_for_each(self) -> bool:
        """Returns whether a collective ends before the next one begins."""

    def graph(self) -> Graph | None:
        """Returns the graph that is being made, `None` in eager execution."""

    def traced_function(self) -> Graph | None:
        """Returns the graph of the function that `graph()` is a part of."""

    def outside_of_traces(self) -> AbstractContextManager[Any]:
        """Runs the code inside now, once, and not as a part of each step."""

    def unconverted(self, function: Function) -> Function:
        """Returns a function that the framework calls as it is.

        Args:
            function: A function that is called while another one is traced,
                and in which no loop or branch depends on a tensor.
        """

    def on_device(self, device: str) -> AbstractContextManager[Any]:
        """Places computations inside on a device, `""` for any."""

    def name_scope(self, name: str) -> AbstractContextManager[Any]:
        """Prefixes the names of variables that are made inside."""

    def traces_steps(self) -> bool:
        """Returns whether a step of training is traced once, and then run."""

    def captures_variables(self) -> bool:
        """Returns whether a step reads any variable at each of its runs.

        Otherwise it reads those of its model and optimizer alone.
        """

    def clips_each_step(self) -> bool:
        """Returns whether Keras clips accumulated gradients in each step.

        Otherwise it does so where an update uses them.
        """

    def after(self, operation: Operation) -> AbstractContextManager[Any]:
        """Runs computations inside after an operation, `None` for none."""

    def at_each_run(self, function: Callable[[], None]) -> Operation:
        """Calls a function of Python whenever the graph runs that is made."""

    def has_gpus(self) -> bool:
        """Returns whether the program computes on GPUs."""

    def num_threads(self) -> int:
        """Returns the number of threads of one operation, 0 if not set."""

    # --- Steps of a training ---

    def replaced_step(
        self, model: Model, train: Any, around: Callable[[Run, Any], Logs]
    ) -> Any:
        """Returns a training function of a model that calls another one.

        Args:
            model: A `keras.Model`.
            train: Its `train_function`.
            around: Function that takes one that trains on the batches of an
                iterator, and the iterator, and returns logs.
        """

    def tried_step(
        self,
        model: Model,
        train_step: Callable[..., Any],
        batch: Structure,
    ) -> tuple[Logs, dict[int, npt.NDArray[Any]]]:
        """Runs a step at once, with new metrics, and undoes what it assigns.

        Args:
            model: A `keras.Model` in `fit`.
            train_step: Its step, which takes what Keras gives it.
            batch: The batch.

        Returns:
            A tuple of what it has returned, and of the values that variables
            had after it, by the identity of the variable: those of metrics,
            and those that the model keeps and does not train.
        """

    def runner(self, model: Model) -> Run:
        """Returns a function that trains a model, from its present state.

        It may train a copy of it. The model has its `train_function` already.
        """

    # --- Variables ---

    def variable_path(self, variable: Variable) -> str | None:
        """Returns the path of a variable, `None` for any other object."""

    def variable_class(self) -> type:
        """Returns the class of the results of `storage`."""

    def storage(self, variable: Variable) -> Any:
        """Returns the object that stands for the memory of a variable.

        It is the same object as long as the variable lives, for all objects
        that share that memory, and may get attributes.
        """

    def is_initialized(self, variable: Variable) -> bool:
        """Returns whether a variable has a value."""

    def dtype_name(self, variable: Variable) -> str:
        """Returns the name of a variable's dtype."""

    def num_bytes(self, variable: Variable) -> int | None:
        """Returns the size of a variable, `None` if its shape is unknown."""

    def read_scalar(self, variable: Variable) -> float:
        """Returns the present value of a scalar, at the least cost."""

    def write_scalar(self, variable: Variable, value: float) -> None:
        """Sets the value of a scalar at once, at the least cost."""

    def value_of(self, variable: Variable) -> Any:
        """Returns the value of a variable, `None` if only Keras can read it."""

    def as_array(self, value: Any) -> npt.NDArray[Any]:
        """Returns a tensor that has a value as an array."""

    def bytes_of(
        self, value: Any, begin: int | None = None, end: int | None = None
    ) -> npt.NDArray[np.uint8]:
        """Returns the bytes of a value, without a copy if possible.

        Args:
            value: A tensor, or an array.
            begin: Integer, the first byte. Defaults to that of the value.
            end: Integer, the byte after the last. Defaults to the end.
        """

    # --- Tensors and structures ---

    def is_tensor(self, value: object) -> bool:
        """Returns whether an object is a tensor."""

    def as_tensor(self, value: Any) -> Tensor:
        """Returns the value of a variable or an array as a tensor."""

    def cast(self, tensor: Any, dtype: DType) -> Tensor:
        """Returns a tensor, a number or an array as a tensor of a dtype.

        Args:
            tensor: The values.
            dtype: The dtype of a tensor, or its name.
        """

    def is_floating(self, tensor: Tensor) -> bool:
        """Returns whether a tensor holds floating-point numbers."""

    def flatten(self, structure: Structure) -> list[Any]:
        """Returns the leaves of a structure of values."""

    def map_structure(
        self, function: Callable[[Any], Any], structure: Structure
    ) -> Structure:
        """Returns a structure with the results of a function of its leaves."""

    def pack(self, structure: Structure, leaves: Sequence[Any]) -> Structure:
        """Returns a structure with other leaves."""

    def arrays_in(self, structure: Structure) -> Iterator[npt.NDArray[Any]]:
        """Yields the values of the dense tensors in a structure."""

    def take_rows(self, tensor: Tensor, rows: npt.NDArray[Any]) -> Tensor:
        """Returns rows of a tensor.

        Args:
            tensor: A tensor of one dimension or more.
            rows: Array of integers, their indices.
        """

    # --- Batches ---

    def read_ahead(
        self, source: Any, count: int
    ) -> tuple[list[Structure], Any]:
        """Returns the next batches, and what to train on in place of a source.

        Args:
            source: The argument of the training function of a model.
            count: Integer, the number of batches. There are fewer at the end,
                and none if the source is of an unknown kind.
        """

    def repeated(self, batch: Structure, source: Any) -> Any:
        """Returns a source that yields one batch again and again.

        Args:
            batch: The batch.
            source: An earlier argument of the training function of a model.
        """

    def folded(
        self,
        state: Tensor,
        key: npt.NDArray[np.int64],
        count: npt.NDArray[np.int64],
    ) -> Tensor:
        """Returns `(state XOR key) + count`, of integers that wrap around.

        Args:
            state: A tensor of integers.
            key: An array of the same shape.
            count: An array of the same shape.
        """

    def trace(
        self, function: Callable[[Structure], object], batch: Structure
    ) -> None:
        """Makes the variables that a function makes in its first call.

        Args:
            function: Function of a batch. It updates nothing.
            batch: A batch, of which only shapes and dtypes count.
        """

    # --- Random numbers ---

    def random_state(self) -> npt.NDArray[np.uint8] | None:
        """Returns the state of the generator that the framework itself has.

        It is `None` if layers of Keras do not draw from it.
        """

    def set_random_state(self, state: npt.NDArray[np.uint8]) -> None:
        """Sets that state, from the result of `random_state`."""

    def seed_random(self, seed: int) -> None:
        """Seeds that generator."""

    def program_random_state(self) -> Any:
        """Returns the state from which the framework draws for the program.

        It can be compared and pickled. `None` if a program gives the state to
        what it draws.
        """

    def set_program_random_state(self, state: Any) -> None:
        """Sets that state, from the result of `program_random_state`."""

    # --- Gradients ---

    def is_sparse(self, gradient: Gradient) -> bool:
        """Returns whether a gradient has only some of the rows."""

    def dense(self, gradient: Gradient) -> Tensor:
        """Returns a gradient with all rows."""

    def map_gradient(
        self, function: Callable[[Tensor], Tensor], gradient: Gradient
    ) -> Gradient:
        """Applies a function to the values of a gradient.

        Args:
            function: Maps a tensor to one of the same shape.
            gradient: A tensor, or a sparse gradient.
        """

    def part_of_mean(
        self, gradient: Gradient, process_set: ProcessSet
    ) -> Gradient:
        """Returns a gradient divided by the number of ranks of a set."""

    def are_finite(self, gradients: Iterable[Gradient]) -> Tensor:
        """Returns 1 if all values are finite, else 0: a scalar of int32."""

    def or_nan(self, tensor: Tensor, is_valid: Tensor) -> Tensor:
        """Returns a tensor if a scalar of int32 is above 0, else NaN."""

    def with_gradient_factor(
        self, loss: Tensor, weight: Any, factor: Callable[[Any], Tensor]
    ) -> Tensor:
        """Returns a loss whose gradient is multiplied by a factor.

        Args:
            loss: A scalar.
            weight: A scalar, computed in the forward pass.
            factor: Function of the weight that returns the factor, a scalar.
                It is called in the backward pass.
        """

    def share_of(self, weight: Any, process_set: ProcessSet) -> Tensor:
        """Returns `n W_r / sum_q W_q`, or 0 if all weights are 0.

        Args:
            weight: A scalar, the `W_r` of this rank.
            process_set: A `kr.ProcessSet`, whose `n` ranks count.
        """

    # --- Collectives ---

    def unique_names(self, prefix: str, paths: Iterable[str]) -> list[str]:
        """Returns one name per path, all different, the same on all ranks.

        Args:
            prefix: String, the purpose of the names, such as `"gradient"`.
            paths: Paths of variables, in an order that all ranks share.
        """

    def allreduce(
        self,
        tensor: Tensor,
        op: ReduceOp,
        *,
        name: str,
        process_set: ProcessSet,
    ) -> Tensor:
        """Reduces a tensor over all ranks."""

    def allreduce_calls(
        self, calls: Sequence[ReductionCall]
    ) -> list[list[Tensor]]:
        """Runs several allreduces, each of a group of tensors.

        All of them are started before the first is waited for.
        """

    def committed(self, group: str, results: Sequence[Gradient]) -> Tensor:
        """Returns whether a step of an elastic job counts, a boolean scalar.

        Args:
            group: String, the commit group of the step.
            results: The results of all of its operations, or what was computed
                from them.
        """

    def use_if(
        self, answers: Sequence[Tensor | bool], use: Callable[[], Any]
    ) -> None:
        """Uses the results of steps, if all of them count.

        Args:
            answers: Whether they do: results of `committed`, or booleans.
            use: Function without arguments that uses them. Where functions are
                traced it becomes a branch, and must not make variables.
        """

    def early_reducer(
        self,
        name: str,
        buckets: Sequence[tuple[Sequence[str], Sequence[Variable]]],
        call: ReductionCall,
        *,
        sparse_as_dense: bool,
        leaves_out: Callable[[], bool],
    ) -> EarlyReducer | None:
        """Returns an object that reduces averages from now on, if there is one.

        Args:
            name: String, the same on all ranks.
            buckets: Names and variables of gradients that are reduced together.
            call: The other arguments of the reductions.
            sparse_as_dense: Boolean, whether sparse gradients become dense.
            leaves_out: Function that returns whether the present backward
                pass is one of this rank alone.
        """

    def allreduce_sparse(
        self,
        gradient: Gradient,
        op: ReduceOp,
        *,
        name: str,
        compression: Any,
        process_set: ProcessSet,
        keeps_duplicates: bool,
    ) -> Gradient:
        """Sums or averages a sparse gradient over all ranks.

        Args:
            gradient: The gradient.
            op: `kr.Average` or `kr.Sum`.
            name: String, the same on all ranks.
            compression: The format of the values on the wire.
            process_set: A `kr.ProcessSet`, whose ranks reduce.
            keeps_duplicates: Boolean, whether rows of the same index are not
                added up.
        """

    def broadcast_group(
        self,
        tensors: Sequence[Tensor],
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
    ) -> list[Tensor]:
        """Gives all ranks the tensors of one rank, in one operation."""

    def as_carried(self, tensor: Tensor) -> Tensor:
        """Returns a tensor, or its bytes if collectives lack its dtype.

        Raises:
            TypeError: If it holds no numbers.
        """

    def as_before(self, received: Tensor, tensor: Tensor) -> Tensor:
        """Returns what was received as a tensor of a dtype.

        Args:
            received: A tensor, as `as_carried` makes it.
            tensor: What `as_carried` was given.
        """

    def all_of(self, operations: Iterable[Operation]) -> Operation | None:
        """Returns one operation for several, `None` in eager execution."""
