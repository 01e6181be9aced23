"""keras_ring as a system to measure on TensorFlow, and the floor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import keras_ring as kr
from keras_ring._typing import Tensor
from keras_ring.bench import contents, graph_step
from keras_ring.bench.case import Case
from keras_ring.bench.job_system import Floor, JobSystem
from keras_ring.bench.system import Prepared


class KerasRing(JobSystem):
    """keras_ring in the job of this process, which it joins when it is made."""

    def __init__(self) -> None:
        kr.init()
        super().__init__()

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


class NoCollective(Floor, KerasRing):
    """A system that reduces nothing."""

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
