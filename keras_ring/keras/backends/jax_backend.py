"""JAX as the backend of Keras: what `Backend` describes.

Keras compiles a step of training. What this rank compares with others is
compared before a step, or while the step is traced, when variables have the
values that `jax_steps` tells.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import numpy.typing as npt

from keras_ring._typing import (
    DType,
    Gradient,
    Graph,
    Operation,
    Structure,
    Tensor,
    Variable,
)
from keras_ring.core import wire_formats
from keras_ring.core.names import numbered
from keras_ring.core.operations import carried
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import ReduceOp, Sum
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.jax import collectives, tracing
from keras_ring.keras.backends import jax_steps, keras_ops
from keras_ring.keras.backends.interface import EarlyReducer, Function

Compression = wire_formats.Compression
ops = keras_ops

# --- Where code runs ---


def name() -> str:
    return "jax"


def version() -> str:
    return str(jax.__version__)


def is_eager() -> bool:
    return not tracing.is_tracing()


def is_graph_program() -> bool:
    return False


def is_compiled() -> bool:
    return tracing.is_tracing()


def waits_for_each() -> bool:
    # Also in a compiled step, which runs collectives in their order.
    return True


def traces_steps() -> bool:
    return True


def captures_variables() -> bool:
    return False


def clips_each_step() -> bool:
    return True


def graph() -> Graph | None:
    return jax_steps.current()


traced_function = graph
outside_of_traces = jax_steps.outside


def unconverted(function: Function) -> Function:
    return function


def on_device(device: str) -> AbstractContextManager[Any]:
    if not device:
        return nullcontext()
    context: AbstractContextManager[Any] = keras.device(device)
    return context


def name_scope(name: str) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = keras.name_scope(name)
    return context


def after(operation: Operation) -> AbstractContextManager[Any]:
    del operation
    return nullcontext()


def at_each_run(function: Callable[[], None]) -> Operation:
    raise NotImplementedError("only tapes of TensorFlow ask for this")


def has_gpus() -> bool:
    return bool(jax.default_backend() != "cpu")


def num_threads() -> int:
    return int(os.environ.get("PJRT_NPROC", 0))


# --- Steps of a training ---

replaced_step = jax_steps.replacement
runner = jax_steps.runner
tried_step = jax_steps.tried

# --- Variables ---

value_of = jax_steps.value_of


def variable_path(variable: Variable) -> str | None:
    return variable.path if isinstance(variable, keras.Variable) else None


def variable_class() -> type:
    return keras.Variable  # type: ignore[no-any-return]


def storage(variable: Variable) -> Any:
    return variable


def is_initialized(variable: Variable) -> bool:
    return value_of(variable) is not None


def dtype_name(variable: Variable) -> str:
    return str(keras.backend.standardize_dtype(variable.dtype))


def num_bytes(variable: Variable) -> int | None:
    itemsize: int = jnp.dtype(dtype_name(variable)).itemsize
    return int(np.prod(variable.shape, dtype=np.int64)) * itemsize


def read_scalar(variable: Variable) -> float:
    return float(value_of(variable))


def write_scalar(variable: Variable, value: float) -> None:
    variable.assign(value)


def as_array(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value)


def bytes_of(
    value: Any, begin: int | None = None, end: int | None = None
) -> npt.NDArray[np.uint8]:
    content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return content[begin:end]


# --- Tensors and structures ---


def is_tensor(value: object) -> bool:
    return isinstance(value, jax.Array)


def as_tensor(value: Any) -> Tensor:
    if isinstance(value, keras.Variable) and is_eager():
        return jnp.asarray(value_of(value))
    return jnp.asarray(value)


def cast(tensor: Any, dtype: DType) -> Tensor:
    return jnp.asarray(tensor, keras.backend.standardize_dtype(dtype))


def is_floating(tensor: Tensor) -> bool:
    return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


def flatten(structure: Structure) -> list[Any]:
    return list(keras.tree.flatten(structure))


def map_structure(
    function: Callable[[Any], Any], structure: Structure
) -> Structure:
    return keras.tree.map_structure(function, structure)


def pack(structure: Structure, leaves: Sequence[Any]) -> Structure:
    return keras.tree.pack_sequence_as(structure, list(leaves))


def arrays_in(structure: Structure) -> Iterator[npt.NDArray[Any]]:
    for each in keras.tree.flatten(structure):
        if isinstance(each, jax.Array | np.ndarray):
            yield np.asarray(each)


def take_rows(tensor: Tensor, rows: npt.NDArray[Any]) -> Tensor:
    return tensor[rows]


def trace(function: Callable[[Structure], object], batch: Structure) -> None:
    raise ValueError(
        "The model has no weights yet, and Keras on JAX does not make them "
        "while it trains. Build it before `fit`, for example by a call of each "
        "of its parts on a batch."
    )


# --- Batches ---


def read_ahead(source: Any, count: int) -> tuple[list[Structure], Any]:
    batches = list(itertools.islice(source, count))
    return batches, itertools.chain(batches, source)


def repeated(batch: Structure, source: Any) -> Any:
    del source
    return itertools.repeat(batch)


def folded(
    state: Tensor, key: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> Tensor:
    # By NumPy: JAX has no int64 unless a program asks for it.
    words = (np.asarray(state).astype(np.int64) ^ key) + count
    # Values that do not fit wrap around.
    return jnp.asarray(words.astype(state.dtype))


# --- Random numbers ---


def random_state() -> npt.NDArray[np.uint8] | None:
    return None


def set_random_state(state: npt.NDArray[np.uint8]) -> None:
    raise NotImplementedError("layers draw from generators of Keras")


def seed_random(seed: int) -> None:
    raise NotImplementedError("layers draw from generators of Keras")


def program_random_state() -> Any:
    return None


def set_program_random_state(state: Any) -> None:
    del state


# --- Gradients ---


def is_sparse(gradient: Gradient) -> bool:
    # Those of embeddings have all rows.
    return False


def dense(gradient: Gradient) -> Tensor:
    return gradient


def map_gradient(
    function: Callable[[Tensor], Tensor], gradient: Gradient
) -> Gradient:
    return function(gradient)


def part_of_mean(gradient: Gradient, process_set: ProcessSet) -> Gradient:
    return gradient * jnp.asarray(1.0 / process_set.size(), gradient.dtype)


def are_finite(gradients: Iterable[Gradient]) -> Tensor:
    finite = [jnp.isfinite(each).all() for each in gradients]
    return jnp.stack(finite).all().astype(jnp.int32)


def or_nan(tensor: Tensor, is_valid: Tensor) -> Tensor:
    return jnp.where(is_valid > 0, tensor, jnp.asarray(jnp.nan, tensor.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _with_factor(
    loss: Tensor, weight: Tensor, factor: Callable[[Tensor], Tensor]
) -> Tensor:
    """Returns the loss, whose gradient is multiplied by a factor."""
    return loss


def _keep_weight(
    loss: Tensor, weight: Tensor, factor: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    return loss, weight


def _multiply(
    factor: Callable[[Tensor], Tensor], weight: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor]:
    by = factor(weight).astype(upstream.dtype)
    return upstream * by, jnp.zeros_like(weight)


_with_factor.defvjp(_keep_weight, _multiply)


def with_gradient_factor(
    loss: Tensor, weight: Any, factor: Callable[[Any], Tensor]
) -> Tensor:
    weight = jnp.asarray(weight)
    if not is_floating(weight):
        weight = weight.astype(jnp.float32)
    return _with_factor(loss, jax.lax.stop_gradient(weight), factor)


def share_of(weight: Any, process_set: ProcessSet) -> Tensor:
    weight = jnp.asarray(weight)
    if not is_floating(weight) or weight.dtype.itemsize < 4:
        weight = weight.astype(jnp.float32)
    total = allreduce(weight, Sum, name="loss_weight", process_set=process_set)
    return process_set.size() * ops.divide_no_nan(weight, total)


# --- Collectives ---


def unique_names(prefix: str, paths: Iterable[str]) -> list[str]:
    return numbered(f"{prefix}/{path}" for path in paths)


def allreduce(
    tensor: Tensor, op: ReduceOp, *, name: str, process_set: ProcessSet
) -> Tensor:
    return collectives.allreduce(tensor, op, name=name, process_set=process_set)


def early_reducer(
    name: str,
    buckets: Sequence[tuple[Sequence[str], Sequence[Variable]]],
    call: ReductionCall,
    *,
    sparse_as_dense: bool,
    leaves_out: Callable[[], bool],
) -> EarlyReducer | None:
    return None


def use_if(answers: Sequence[Tensor | bool], use: Callable[[], Any]) -> None:
    if all(bool(answer) for answer in answers):
        use()


def committed(group: str, results: Sequence[Gradient]) -> Tensor:
    raise NotImplementedError(
        f"Elastic jobs train with Keras on TensorFlow only, and this is "
        f"{name()}. Received: elastic=True"
    )


def allreduce_calls(calls: Sequence[ReductionCall]) -> list[list[Tensor]]:
    return [
        collectives.allreduce(
            list(call.tensors),
            call.op,
            name=call.name,
            prescale_factor=call.prescale_factor,
            postscale_factor=call.postscale_factor,
            compression=call.compression or Compression.none,
            process_set=call.process_set,
        )
        for call in calls
    ]


def allreduce_sparse(
    gradient: Gradient,
    op: ReduceOp,
    *,
    name: str,
    compression: Any,
    process_set: ProcessSet,
    keeps_duplicates: bool,
) -> Gradient:
    raise NotImplementedError("JAX has no sparse gradients")


def broadcast_group(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    received: list[Tensor] = collectives.broadcast(
        list(tensors), root_rank, name=name, process_set=process_set
    )
    return received


def as_carried(tensor: Tensor) -> Tensor:
    if tensor.dtype.name in carried():
        return tensor
    return jax.lax.bitcast_convert_type(tensor, jnp.uint8)


def as_before(received: Tensor, tensor: Tensor) -> Tensor:
    if received.dtype == tensor.dtype:
        return received
    return jax.lax.bitcast_convert_type(received, tensor.dtype)


def all_of(operations: Iterable[Operation]) -> Operation | None:
    del operations
    return None
