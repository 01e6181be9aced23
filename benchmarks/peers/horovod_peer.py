"""Horovod's TensorFlow operations.

Written against the interface of Horovod 0.28 and not run where the project is
developed: it does not build against today's TensorFlow.
"""

import horovod
import horovod.tensorflow as hvd
import numpy as np
import peer_main
import tensorflow as tf

from keras_ring.bench import contents, graph_step
from keras_ring.bench.system import Prepared

_OPS = {
    "Average": hvd.Average,
    "Sum": hvd.Sum,
    "Min": hvd.Min,
    "Max": hvd.Max,
    "Product": hvd.Product,
}


class Horovod:
    """The job that `horovodrun` has started."""

    name = "horovod"
    version = horovod.__version__

    def __init__(self):
        hvd.init()
        self.rank = hvd.rank()
        self.size = hvd.size()

    def barrier(self):
        hvd.allreduce(tf.zeros([]), op=hvd.Sum, name="bench.barrier")

    def gather(self, values):
        rows = hvd.allgather(tf.constant(values[np.newaxis]))
        return rows.numpy()

    def counters(self):
        return {}

    def prepare(self, case):
        op = _OPS[case.op]

        def reduce_one(tensor, name):
            return hvd.allreduce(tensor, op=op, name=name)

        def reduce_group(tensors, name):
            return hvd.grouped_allreduce(tensors, op=op, name=name)

        inputs = graph_step.make_inputs(case, self.rank)
        return Prepared(
            graph_step.make_step(case, inputs, reduce_one, reduce_group),
            contents.expected(case, self.size),
        )


if __name__ == "__main__":
    peer_main.main(Horovod)
