"""keras_ring as a system to measure on PyTorch, and the floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import keras_ring.torch as kr
from keras_ring.bench import contents
from keras_ring.bench.case import Case
from keras_ring.bench.job_system import Floor, JobSystem
from keras_ring.bench.system import Prepared

_Reduce = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


class KerasRing(JobSystem):
    """keras_ring in the job of this process, which it joins when it is made."""

    def __init__(self) -> None:
        kr.init()
        super().__init__()

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors of a case.

        Each is an operation of its own, and all are started, in the order of
        gradients, before the first is waited for; or they are one operation.
        """
        options: dict[str, Any] = {
            "op": getattr(kr, case.op),
            "compression": getattr(kr.Compression, case.compression),
        }

        def separate(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            handles = [
                kr.allreduce_async(
                    tensor, name=f"{case.name}/{index}", **options
                )
                for index, tensor in reversed(list(enumerate(tensors)))
            ]
            return [kr.synchronize(handle) for handle in reversed(handles)]

        def grouped(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            reduced: Sequence[torch.Tensor] = kr.grouped_allreduce(
                tensors, name=case.name, **options
            )
            return reduced

        return Prepared(
            run=_made_by(
                case, self.rank, grouped if case.grouped else separate
            ),
            expected=contents.expected(case, self.size),
        )


class NoCollective(Floor, KerasRing):
    """A system that reduces nothing."""

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors, which are copied in place of the collective."""
        return Prepared(
            run=_made_by(
                case, self.rank, lambda tensors: [x.clone() for x in tensors]
            ),
            expected=[
                contents.period(case.op, index, self.rank)
                for index in range(len(case.shapes))
            ],
        )


SYSTEMS = {"keras_ring": KerasRing, "none": NoCollective}


def _made_by(case: Case, rank: int, reduce: _Reduce) -> Callable[[], Any]:
    """Returns a function that reduces the tensors of a case once."""
    dtype = getattr(torch, case.dtype)
    # In memory of PyTorch's own, as gradients are. NumPy has no bfloat16, and
    # small integers are the same in all dtypes.
    inputs = [
        torch.empty(shape, dtype=dtype).copy_(torch.from_numpy(array))
        for shape, array in zip(
            case.shapes, contents.arrays(case, rank, "float64"), strict=True
        )
    ]

    def run() -> Sequence[Any]:
        made = [x * 1 for x in inputs] if case.fresh else inputs
        return [_Result(tensor) for tensor in reduce(made)]

    return run


class _Result:
    """A tensor that NumPy can read, also in bfloat16."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        tensor = self._tensor
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        found = tensor.numpy()
        return found if dtype is None else found.astype(dtype)
