"""keras_ring as a system to measure, and the cost without collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import keras_ring as kr
from keras_ring._typing import Tensor
from keras_ring.bench import contents, graph_step, measured_host_link
from keras_ring.bench.case import Case
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.system import Prepared


class KerasRing:
    """keras_ring in the job of this process, which it joins when it is made."""

    name = "keras_ring"
    version = kr.__version__

    def __init__(self) -> None:
        kr.init()
        self.rank = kr.rank()
        self.size = kr.size()

    def link(self) -> HostLink:
        """Measures the link between the hosts of the job."""
        return measured_host_link.measure()

    def barrier(self) -> None:
        """Waits for all ranks."""
        kr.barrier(name="bench/barrier")

    def gather(
        self, values: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Returns the vectors of all ranks, one row per rank."""
        rows = kr.allgather(values[np.newaxis], name="bench/gather")
        return np.asarray(rows)

    def counters(self) -> Mapping[str, int]:
        """Returns the counters of the runtime."""
        return kr.metrics()

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors and the graph of a case."""
        op = kr.ReduceOp[case.op]
        compression = getattr(kr.Compression, case.compression)

        def reduce_one(tensor: Tensor, name: str) -> Tensor:
            return kr.allreduce(tensor, op, name=name, compression=compression)

        def reduce_group(tensors: list[Tensor], name: str) -> list[Tensor]:
            return kr.grouped_allreduce(
                tensors, op, name=name, compression=compression
            )

        inputs = graph_step.make_inputs(case, self.rank)
        return Prepared(
            run=graph_step.make_step(case, inputs, reduce_one, reduce_group),
            expected=contents.expected(case, self.size),
        )


class AsGradients(KerasRing):
    """keras_ring as it reduces gradients: small ones share ops."""

    name = "keras_ring, as gradients"

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors, and a graph with one call for all of them."""
        op = kr.ReduceOp[case.op]
        compression = getattr(kr.Compression, case.compression)
        inputs = graph_step.make_inputs(case, self.rank)
        variables = [tf.Variable(tf.zeros_like(x)) for x in inputs]

        def reduce_all(tensors: list[Tensor], name: str) -> Sequence[Tensor]:
            del name  # gradients have those of their variables
            tape = kr.DistributedGradientTape(
                _HeldTape(tensors), op, compression=compression
            )
            reduced: Sequence[Tensor] = tape.gradient(None, variables)
            return reduced

        return Prepared(
            run=graph_step.make_step(
                dataclasses.replace(case, grouped=True),
                inputs,
                lambda tensor, name: tensor,
                reduce_all,
            ),
            expected=contents.expected(case, self.size),
        )


class _HeldTape(tf.GradientTape):  # type: ignore[misc]
    """A tape that returns given gradients."""

    def __init__(self, gradients: list[Tensor]) -> None:
        super().__init__()
        self._gradients = gradients

    def gradient(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Returns the given gradients, whatever the arguments."""
        return self._gradients


class NoCollective(KerasRing):
    """A system that reduces nothing: the cost of TensorFlow and measuring.

    The ranks still start and combine their times through keras_ring.
    """

    name = "none"

    def link(self) -> HostLink:
        """Returns a link of one host: a case sends nothing to other hosts."""
        return HostLink()

    def counters(self) -> Mapping[str, int]:
        """Returns no counters: there are no collectives to count."""
        return {}

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors, and a graph that returns them."""
        inputs = graph_step.make_inputs(case, self.rank)
        return Prepared(
            run=graph_step.make_step(
                case,
                inputs,
                lambda tensor, name: tf.identity(tensor),
                lambda tensors, name: [tf.identity(x) for x in tensors],
            ),
            expected=[
                contents.period(case.op, index, self.rank)
                for index in range(len(inputs))
            ],
        )


SYSTEMS = {
    "keras_ring": KerasRing,
    "gradients": AsGradients,
    "none": NoCollective,
}
