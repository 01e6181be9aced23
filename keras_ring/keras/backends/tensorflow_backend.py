"""TensorFlow as the backend of Keras: what `Backend` describes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

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
from keras_ring.core import reduce_ops, topology
from keras_ring.core.operations import carried
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import ReduceOp
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.keras.backends.interface import EarlyReducer, Run
from keras_ring.keras.backends.which import keras
from keras_ring.tensorflow import (
    array_functions,
    autograph,
    commits,
    compression,
    dataset_iterators,
    execution,
    gathers,
    global_random,
    names,
    ordering,
    reduction_calls,
    reductions,
    sparse,
    tensors,
    topology_ops,
    xla,
)

Compression = compression.Compression
ops = array_functions

# --- Where code runs ---


def name() -> str:
    return "tensorflow"


def version() -> str:
    return str(tf.__version__)


def is_eager() -> bool:
    return bool(tf.executing_eagerly())


is_graph_program = execution.is_graph_program
is_compiled = xla.is_tracing
unconverted = autograph.do_not_convert


def waits_for_each() -> bool:
    return is_eager()


def graph() -> Graph | None:
    return None if is_eager() else tf.compat.v1.get_default_graph()


def traced_function() -> Graph | None:
    made = graph()
    return None if made is None else ordering.function_of(made)


def outside_of_traces() -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = tf.init_scope()
    return context


def on_device(device: str) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = tf.device(device or None)
    return context


def name_scope(name: str) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = tf.name_scope(name)
    return context


def traces_steps() -> bool:
    return True


def captures_variables() -> bool:
    return True


def clips_each_step() -> bool:
    return False


def after(operation: Operation) -> AbstractContextManager[Any]:
    if operation is None:
        return nullcontext()
    context: AbstractContextManager[Any] = tf.control_dependencies([operation])
    return context


def at_each_run(function: Callable[[], None]) -> Operation:
    return tf.py_function(function, [], [])


def has_gpus() -> bool:
    return bool(tf.config.get_visible_devices("GPU"))


def num_threads() -> int:
    return int(tf.config.threading.get_intra_op_parallelism_threads())


# --- Steps of a training ---


def replaced_step(
    model: Model, train: Any, around: Callable[[Run, Any], Logs]
) -> Any:
    del model
    return functools.partial(around, train)


def tried_step(
    model: Model, train_step: Callable[..., Any], batch: Structure
) -> tuple[Logs, dict[int, npt.NDArray[Any]]]:
    raise NotImplementedError("steps of TensorFlow are compared as recorded")


def runner(model: Model) -> Run:
    train: Run = model.train_function
    return train


# --- Variables ---

# The class of Keras 3's variables. Those of Keras 2 are TensorFlow's.
_KERAS = getattr(keras, "Variable", ())

variable_path = names.variable_path
num_bytes = tensors.num_bytes


def variable_class() -> type:
    return tf.Variable  # type: ignore[no-any-return]


def storage(variable: Variable) -> Any:
    """Returns the TensorFlow variable, which optimizers and tapes share."""
    return variable.value if isinstance(variable, _KERAS) else variable


def is_initialized(variable: Variable) -> bool:
    return bool(storage(variable).is_initialized())


def dtype_name(variable: Variable) -> str:
    return str(tf.as_dtype(variable.dtype).name)


def read_scalar(variable: Variable) -> float:
    # Bare operations: what `tf.Variable` and `keras.Variable` add takes several
    # times as long, and each step waits for it.
    plain = storage(variable)
    value = tf.raw_ops.ReadVariableOp(resource=plain.handle, dtype=plain.dtype)
    return float(value.numpy())


def write_scalar(variable: Variable, value: float) -> None:
    plain = storage(variable)
    tf.raw_ops.AssignVariableOp(
        resource=plain.handle, value=tf.constant(value, plain.dtype)
    )


def value_of(variable: Variable) -> Any:
    plain = storage(variable)
    if is_eager() and isinstance(plain, BaseResourceVariable):
        return tf.raw_ops.ReadVariableOp(
            resource=plain.handle, dtype=plain.dtype
        )
    return None


def as_array(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value)


def bytes_of(
    value: Any, begin: int | None = None, end: int | None = None
) -> npt.NDArray[np.uint8]:
    if begin is not None and end is not None:
        value = tf.convert_to_tensor(value)
        size = value.dtype.size
        # By an operation, so that only the piece is copied from an accelerator.
        value = tf.reshape(value, [-1])[begin // size : end // size]
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return np.frombuffer(value, np.uint8)


# --- Tensors and structures ---


def is_tensor(value: object) -> bool:
    return bool(tf.is_tensor(value))


def as_tensor(value: Any) -> Tensor:
    return tf.convert_to_tensor(value)


def cast(tensor: Any, dtype: DType) -> Tensor:
    return tf.cast(tensor, dtype)


def is_floating(tensor: Tensor) -> bool:
    return bool(tensor.dtype.is_floating)


def flatten(structure: Structure) -> list[Any]:
    return list(tf.nest.flatten(structure))


def map_structure(
    function: Callable[[Any], Any], structure: Structure
) -> Structure:
    return tf.nest.map_structure(function, structure)


def pack(structure: Structure, leaves: Sequence[Any]) -> Structure:
    return tf.nest.pack_sequence_as(structure, leaves)


def arrays_in(structure: Structure) -> Iterator[npt.NDArray[Any]]:
    for each in tf.nest.flatten(structure, expand_composites=True):
        if isinstance(each, tf.Tensor) and each.dtype not in (
            tf.variant,
            tf.resource,
        ):
            yield np.asarray(each.numpy())


def take_rows(tensor: Tensor, rows: npt.NDArray[Any]) -> Tensor:
    return tf.gather(tensor, rows)


# --- Batches ---


def read_ahead(source: Any, count: int) -> tuple[list[Structure], Any]:
    if not isinstance(source, tf.data.Iterator):
        return [], source
    batches = dataset_iterators.next_of(source, count)
    if not batches:
        return [], source
    return batches, dataset_iterators.iterator_of(batches, source)


def repeated(batch: Structure, source: Any) -> Any:
    return dataset_iterators.repeated(batch, source)


def folded(
    state: Tensor, key: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> Tensor:
    words = tf.bitwise.bitwise_xor(tf.cast(state, tf.int64), key) + count
    # Values that do not fit wrap around.
    return tf.cast(words, state.dtype)


def trace(function: Callable[[Structure], object], batch: Structure) -> None:
    # Without an `init_scope`, which would stop all tapes.
    traced = tf.function(function, autograph=False)
    specs = tf.nest.map_structure(tf.type_spec_from_value, batch)
    traced.get_concrete_function(specs)


# --- Random numbers ---


def random_state() -> npt.NDArray[np.uint8] | None:
    return None


def set_random_state(state: npt.NDArray[np.uint8]) -> None:
    raise NotImplementedError("layers draw from generators of Keras")


def seed_random(seed: int) -> None:
    raise NotImplementedError("layers draw from generators of Keras")


program_random_state = global_random.get
set_program_random_state = global_random.set_to

# --- Gradients ---

map_gradient = sparse.map_gradient


def part_of_mean(gradient: Gradient, process_set: ProcessSet) -> Gradient:
    return sparse.scaled_gradient(
        gradient, topology_ops.mean_factor(process_set)
    )


def is_sparse(gradient: Gradient) -> bool:
    return isinstance(gradient, tf.IndexedSlices)


def dense(gradient: Gradient) -> Tensor:
    return tf.convert_to_tensor(gradient)


def are_finite(gradients: Iterable[Gradient]) -> Tensor:
    finite = [
        tf.reduce_all(tf.math.is_finite(sparse.values_of(gradient)))
        for gradient in gradients
    ]
    return tf.cast(tf.reduce_all(finite), tf.int32)


def or_nan(tensor: Tensor, is_valid: Tensor) -> Tensor:
    return tf.where(
        is_valid > 0, tensor, tf.constant(float("nan"), tensor.dtype)
    )


def with_gradient_factor(
    loss: Tensor, weight: Any, factor: Callable[[Any], Tensor]
) -> Tensor:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def identity(
        loss: Tensor,
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def gradient(upstream: Tensor) -> Tensor:
            return upstream * tf.cast(factor(weight), upstream.dtype)

        return tf.identity(loss), gradient

    return identity(loss)


def share_of(weight: Any, process_set: ProcessSet) -> Tensor:
    weight = tf.convert_to_tensor(weight)
    if not weight.dtype.is_floating or weight.dtype.size < 4:
        weight = tf.cast(weight, tf.float32)
    if topology.is_elastic():
        # Divided by as many ranks as have been summed, whoever is lost
        # meanwhile.
        mean = reductions.allreduce(
            weight,
            reduce_ops.Average,
            name="loss_weight",
            process_set=process_set,
        )
        return tf.math.divide_no_nan(weight, mean)
    total = reductions.allreduce(
        weight, reduce_ops.Sum, name="loss_weight", process_set=process_set
    )
    size = tf.constant(process_set.size(), weight.dtype)
    return size * tf.math.divide_no_nan(weight, total)


# --- Collectives ---

unique_names = names.unique_names


def allreduce(
    tensor: Tensor, op: ReduceOp, *, name: str, process_set: ProcessSet
) -> Tensor:
    return reductions.allreduce(tensor, op, name=name, process_set=process_set)


def allreduce_calls(calls: Sequence[ReductionCall]) -> list[list[Tensor]]:
    return reduction_calls.allreduce_calls(calls)


committed = commits.committed
use_if = commits.use_if


def early_reducer(
    name: str,
    buckets: Sequence[tuple[Sequence[str], Sequence[Variable]]],
    call: ReductionCall,
    *,
    sparse_as_dense: bool,
    leaves_out: Callable[[], bool],
) -> EarlyReducer | None:
    # In a graph, reductions begin as gradients become ready.
    return None


def allreduce_sparse(
    gradient: Gradient,
    op: ReduceOp,
    *,
    name: str,
    compression: Any,
    process_set: ProcessSet,
    keeps_duplicates: bool,
) -> Gradient:
    return sparse.allreduce_indexed_slices(
        gradient,
        op,
        name=name,
        compression=compression,
        process_set=process_set,
        keeps_duplicates=keeps_duplicates,
    )


def broadcast_group(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    return gathers.broadcast_group(tensors, root_rank, name, process_set)


def as_carried(tensor: Tensor) -> Tensor:
    dtype = tensor.dtype
    if dtype.name in carried():
        return tensor
    if not (dtype.is_integer or dtype.is_floating):
        raise TypeError(
            f"Variables of type {dtype.name} cannot be broadcast. Use "
            "`kr.broadcast_object` for their values."
        )
    return tf.bitcast(tensor, tf.uint8)


def as_before(received: Tensor, tensor: Tensor) -> Tensor:
    dtype = tensor.dtype
    return received if received.dtype == dtype else tf.bitcast(received, dtype)


def all_of(operations: Iterable[Operation]) -> Operation | None:
    made = [each for each in operations if each is not None]
    return None if is_eager() else tf.group(*made)
