"""PyTorch as the backend of Keras: what `Backend` describes.

PyTorch computes at once, so there are no graphs, and a step of training is
never traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import torch

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
from keras_ring.core.names import numbered
from keras_ring.core.operations import carried
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduce_ops import ReduceOp, Sum
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.keras.backends import keras_ops
from keras_ring.keras.backends.interface import EarlyReducer, Function, Run
from keras_ring.torch import (
    compression,
    gather_calls,
    reduction_calls,
    reductions,
    sparse,
)
from keras_ring.torch.gradient_reducer import GradientReducer
from keras_ring.torch.reduction_calls import Reduction

Compression = compression.Compression
ops = keras_ops

# --- Where code runs ---


def name() -> str:
    return "torch"


def version() -> str:
    return str(torch.__version__)


def is_eager() -> bool:
    return True


def is_graph_program() -> bool:
    return False


def is_compiled() -> bool:
    return False


def waits_for_each() -> bool:
    return False


def traces_steps() -> bool:
    return False


def captures_variables() -> bool:
    return True


def clips_each_step() -> bool:
    return False


def graph() -> Graph | None:
    return None


def traced_function() -> Graph | None:
    return None


def outside_of_traces() -> AbstractContextManager[Any]:
    return nullcontext()


def unconverted(function: Function) -> Function:
    # With `jit_compile=True` Keras compiles a step by `torch.compile`.
    left_out: Function = torch.compiler.disable(function)
    return left_out


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
    raise NotImplementedError("PyTorch makes no graphs")


def has_gpus() -> bool:
    return bool(torch.cuda.is_available())


def num_threads() -> int:
    return int(torch.get_num_threads())


# --- Steps of a training ---


def replaced_step(
    model: Model, train: Any, around: Callable[[Run, Any], Logs]
) -> Any:
    del model
    return functools.partial(around, train)


def tried_step(
    model: Model, train_step: Callable[..., Any], batch: Structure
) -> tuple[Logs, dict[int, npt.NDArray[Any]]]:
    variables = [*model.variables, *model.metrics_variables]
    kept = [(each, value_of(each).clone()) for each in variables]
    try:
        model.reset_metrics()
        logs = train_step(batch)
        return logs, {
            id(each): as_array(value_of(each)).copy()
            for each in [
                *model.non_trainable_variables,
                *model.metrics_variables,
            ]
        }
    finally:
        with torch.no_grad():
            for variable, value in kept:
                variable.value.copy_(value)
        model.zero_grad()


def runner(model: Model) -> Run:
    train: Run = model.train_function
    return train


# --- Variables ---


def variable_path(variable: Variable) -> str | None:
    return variable.path if isinstance(variable, keras.Variable) else None


def variable_class() -> type:
    return keras.Variable  # type: ignore[no-any-return]


def storage(variable: Variable) -> Any:
    return variable


def is_initialized(variable: Variable) -> bool:
    del variable
    return True


def dtype_name(variable: Variable) -> str:
    return str(keras.backend.standardize_dtype(variable.dtype))


def num_bytes(variable: Variable) -> int | None:
    value = variable.value
    return int(value.numel() * value.element_size())


def read_scalar(variable: Variable) -> float:
    return float(variable.value.item())


def write_scalar(variable: Variable, value: float) -> None:
    variable.assign(value)


def value_of(variable: Variable) -> Any:
    return variable.value.detach()


def as_array(value: Any) -> npt.NDArray[Any]:
    if isinstance(value, torch.Tensor):
        array: npt.NDArray[Any] = keras.ops.convert_to_numpy(value)
        return array
    return np.asarray(value)


def bytes_of(
    value: Any, begin: int | None = None, end: int | None = None
) -> npt.NDArray[np.uint8]:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)[begin:end]
    content = value.detach().contiguous().reshape(-1).view(torch.uint8)
    # Only the piece is copied from an accelerator.
    found: npt.NDArray[np.uint8] = content[begin:end].cpu().numpy()
    return found


# --- Tensors and structures ---


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def as_tensor(value: Any) -> Tensor:
    return keras.ops.convert_to_tensor(value).detach()


def cast(tensor: Any, dtype: DType) -> Tensor:
    if isinstance(dtype, torch.dtype):
        dtype = keras.backend.standardize_dtype(dtype)
    return keras.ops.convert_to_tensor(tensor, dtype)


def is_floating(tensor: Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point)


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
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            yield as_array(each)
        elif isinstance(each, np.ndarray):
            yield each


def take_rows(tensor: Tensor, rows: npt.NDArray[Any]) -> Tensor:
    return tensor[torch.as_tensor(rows, device=tensor.device)]


def trace(function: Callable[[Structure], object], batch: Structure) -> None:
    raise ValueError(
        "The model has no weights yet, and with PyTorch it is not known which "
        "ones its training step would make before it has trained. Build it "
        "before `fit`, for example by a call of each of its parts on a batch."
    )


# --- Batches ---


def read_ahead(source: Any, count: int) -> tuple[list[Structure], Any]:
    # Keras calls the training function with a list of batches.
    return (source[:count] if isinstance(source, list) else []), source


def repeated(batch: Structure, source: Any) -> Any:
    del source
    return [batch]


def folded(
    state: Tensor, key: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> Tensor:
    device = state.device
    words = state.to(torch.int64) ^ torch.as_tensor(key, device=device)
    words += torch.as_tensor(count, device=device)
    # Values that do not fit wrap around.
    return words.to(state.dtype)


# --- Random numbers ---


def random_state() -> npt.NDArray[np.uint8] | None:
    # `keras.layers.Dropout` without a seed draws from it.
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    found: npt.NDArray[np.uint8] = torch.cat(states).numpy()
    return found


def set_random_state(state: npt.NDArray[np.uint8]) -> None:
    begin = len(torch.get_rng_state())
    states = torch.from_numpy(np.array(state))
    torch.set_rng_state(states[:begin])
    if torch.cuda.is_available() and len(states) > begin:
        torch.cuda.set_rng_state(states[begin:])


def seed_random(seed: int) -> None:
    torch.manual_seed(seed)


def program_random_state() -> Any:
    # Layers and a program draw from one generator.
    state = random_state()
    return None if state is None else state.tobytes()


def set_program_random_state(state: Any) -> None:
    set_random_state(np.frombuffer(state, np.uint8))


# --- Gradients ---


def is_sparse(gradient: Gradient) -> bool:
    return gradient.layout is not torch.strided


def dense(gradient: Gradient) -> Tensor:
    return gradient.to_dense() if is_sparse(gradient) else gradient


def map_gradient(
    function: Callable[[Tensor], Tensor], gradient: Gradient
) -> Gradient:
    if not is_sparse(gradient):
        return function(gradient)
    gradient = gradient.coalesce()
    return torch.sparse_coo_tensor(
        gradient.indices(),
        function(gradient.values()),
        gradient.shape,
        is_coalesced=True,
    )


def part_of_mean(gradient: Gradient, process_set: ProcessSet) -> Gradient:
    factor = 1.0 / process_set.size()
    return map_gradient(
        lambda values: reduction_calls.scaled(values, factor), gradient
    )


def are_finite(gradients: Iterable[Gradient]) -> Tensor:
    finite = [
        torch.isfinite(
            each.coalesce().values() if is_sparse(each) else each
        ).all()
        for each in gradients
    ]
    return torch.stack(finite).all().to(torch.int32)


def or_nan(tensor: Tensor, is_valid: Tensor) -> Tensor:
    return torch.where(is_valid > 0, tensor, torch.nan)


class _WithFactor(torch.autograd.Function):  # type: ignore[misc]
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: torch.Tensor,
        weight: Any,
        factor: Callable[[Any], torch.Tensor],
    ) -> torch.Tensor:
        ctx.weight, ctx.factor = weight, factor
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> Any:
        (gradient,) = upstream
        factor = ctx.factor(ctx.weight)
        return gradient * factor.to(gradient.dtype), None, None


def with_gradient_factor(
    loss: Tensor, weight: Any, factor: Callable[[Any], Tensor]
) -> Tensor:
    return _WithFactor.apply(loss, weight, factor)


def share_of(weight: Any, process_set: ProcessSet) -> Tensor:
    weight = keras.ops.convert_to_tensor(weight).detach()
    if not weight.dtype.is_floating_point or weight.dtype.itemsize < 4:
        weight = weight.to(torch.float32)
    total = allreduce(weight, Sum, name="loss_weight", process_set=process_set)
    return process_set.size() * ops.divide_no_nan(weight, total)


# --- Collectives ---


def unique_names(prefix: str, paths: Iterable[str]) -> list[str]:
    return numbered(f"{prefix}/{path}" for path in paths)


def allreduce(
    tensor: Tensor, op: ReduceOp, *, name: str, process_set: ProcessSet
) -> Tensor:
    return reductions.allreduce(
        tensor, name=name, op=op, process_set=process_set
    )


def _reduction(call: ReductionCall) -> Reduction:
    return Reduction(
        call.op,
        call.prescale_factor,
        call.postscale_factor,
        call.compression or Compression.none,
        call.process_set,
    )


class _EarlyReducer:
    """Reduces the gradients of Keras' variables as PyTorch computes them.

    Args:
        reducer: The `GradientReducer` of their parameters.
    """

    def __init__(self, reducer: GradientReducer) -> None:
        self._reducer = reducer

    def completed(
        self, gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[Gradient]:
        """Reduces what is there, unless the program has other gradients."""
        own = [variable.value.grad for variable in variables]
        pairs = zip(gradients, own, strict=True)
        if any(each is not None and each is not mine for each, mine in pairs):
            return list(gradients)
        self._reducer.complete()
        return [variable.value.grad for variable in variables]

    def has_reduced(self, gradient: Gradient, variable: Variable) -> bool:
        """Returns whether it is the tensor that the reducer has written to."""
        return self._reducer.is_complete and gradient is variable.value.grad

    def end_step(self) -> None:
        """Begins anew."""
        self._reducer.end_step()

    def close(self) -> None:
        """Removes the hooks."""
        self._reducer.close()


def early_reducer(
    name: str,
    buckets: Sequence[tuple[Sequence[str], Sequence[Variable]]],
    call: ReductionCall,
    *,
    sparse_as_dense: bool,
    leaves_out: Callable[[], bool],
) -> EarlyReducer | None:
    reducer = GradientReducer(
        name,
        _reduction(call),
        passes=1,
        sparse_as_dense=sparse_as_dense,
        leaves_out=leaves_out,
    )
    for names, variables in buckets:
        reducer.add(names, [variable.value for variable in variables])
    return _EarlyReducer(reducer)


def use_if(answers: Sequence[Tensor | bool], use: Callable[[], Any]) -> None:
    if all(bool(answer) for answer in answers):
        use()


def committed(group: str, results: Sequence[Gradient]) -> Tensor:
    raise NotImplementedError(
        f"Elastic jobs train with Keras on TensorFlow only, and this is "
        f"{name()}. Received: elastic=True"
    )


def allreduce_calls(calls: Sequence[ReductionCall]) -> list[list[Tensor]]:
    handles = []
    for call in calls:
        reduction = _reduction(call)
        reduction.check(call.tensors, "allreduce")
        handles.append(
            reduction_calls.allreduce(call.tensors, call.name, reduction)
        )
    return [handle.wait() for handle in handles]


def allreduce_sparse(
    gradient: Gradient,
    op: ReduceOp,
    *,
    name: str,
    compression: Any,
    process_set: ProcessSet,
    keeps_duplicates: bool,
) -> Gradient:
    del keeps_duplicates  # PyTorch itself adds them up.
    reduction = Reduction(op, compression=compression, process_set=process_set)
    return sparse.allreduce(gradient, name, reduction).wait()


def broadcast_group(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    handle = gather_calls.broadcast(
        list(tensors), root_rank, name or "broadcast", process_set
    )
    received: list[Tensor] = handle.wait()
    return received


def as_carried(tensor: Tensor) -> Tensor:
    if str(tensor.dtype).removeprefix("torch.") in carried():
        return tensor
    return tensor.contiguous().view(torch.uint8)


def as_before(received: Tensor, tensor: Tensor) -> Tensor:
    if received.dtype == tensor.dtype:
        return received
    return received.view(tensor.dtype)


def all_of(operations: Iterable[Operation]) -> Operation | None:
    del operations
    return None
