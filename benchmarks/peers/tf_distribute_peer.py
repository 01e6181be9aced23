"""`tf.distribute.MultiWorkerMirroredStrategy`, RING between the workers.

A group is one `all_reduce` of a list, which TensorFlow packs; other tensors
are an `all_reduce` each.
"""

import json
import os

import numpy as np
import peer_main

from keras_ring.bench import contents

RANK = int(os.environ["KERAS_RING_RANK"])
ADDRESSES = os.environ["PEER_ADDRESSES"].split(",")
# Before TensorFlow starts, for it reads this once.
os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {"worker": ADDRESSES},
        "task": {"type": "worker", "index": RANK},
    }
)

import tensorflow as tf  # noqa: E402

from keras_ring.bench import graph_step  # noqa: E402
from keras_ring.bench.system import Prepared  # noqa: E402

_OPS = {
    "Average": tf.distribute.ReduceOp.MEAN,
    "Sum": tf.distribute.ReduceOp.SUM,
}


class MultiWorker:
    """A worker; the launcher says which."""

    name = "tf.distribute"
    version = tf.__version__
    rank = RANK
    size = len(ADDRESSES)

    def __init__(self):
        self._options = tf.distribute.experimental.CommunicationOptions(
            implementation=(
                tf.distribute.experimental.CommunicationImplementation.RING
            )
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=self._options
        )
        self._barrier = self._total_of(tf.zeros([1]))

    def barrier(self):
        self._barrier().numpy()

    def gather(self, values):
        rows = np.zeros((self.size, len(values)))
        rows[self.rank] = values
        return self._total_of(tf.constant(rows))().numpy()

    def counters(self):
        return {}

    def prepare(self, case):
        op = _OPS[case.op]

        def reduce_one(tensor, name):
            del name
            return self._all_reduce(op, tensor)

        def reduce_group(tensors, name):
            del name
            return list(self._all_reduce(op, tensors))

        inputs = graph_step.make_inputs(case, self.rank)
        step = graph_step.make_body(case, inputs, reduce_one, reduce_group)
        return Prepared(
            self._in_replica(step), contents.expected(case, self.size)
        )

    def _total_of(self, tensor):
        # Captured, since an argument has no device, and the strategy wants one.
        return self._in_replica(
            lambda: self._all_reduce(tf.distribute.ReduceOp.SUM, tensor)
        )

    def _all_reduce(self, op, value):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(op, value, options=self._options)

    def _in_replica(self, function):
        return tf.function(lambda: self._strategy.run(function))


if __name__ == "__main__":
    peer_main.main(MultiWorker)
