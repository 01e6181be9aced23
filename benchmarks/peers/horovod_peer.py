"""Horovod's TensorFlow operations.

Its ranks are started by `horovodrun` or `mpirun`; with PEER_HOSTS (as
`horovodrun -H` takes them) by our launcher, since `horovodrun` reaches hosts by
no other way than the user's own ssh.
"""

import os
import time

import horovod
import horovod.tensorflow as hvd
import numpy as np
import peer_main
import tensorflow as tf
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

from keras_ring.bench import contents, graph_step
from keras_ring.bench.system import Prepared

_OPS = {
    "Average": hvd.Average,
    "Sum": hvd.Sum,
    "Min": hvd.Min,
    "Max": hvd.Max,
    "Product": hvd.Product,
}


def _meet():
    """Does for a rank of our launcher what `horovodrun` does for its own."""
    hosts = parse_hosts(os.environ["PEER_HOSTS"])
    size = int(os.environ["KERAS_RING_SIZE"])
    slots = get_host_assignments(hosts, size)
    rank = int(os.environ["KERAS_RING_RANK"])
    meeting = peer_main.results_path().with_name("horovod_port")
    if rank == 0:
        server = RendezvousServer()
        port = server.start()
        server.init(slots)
        written = meeting.with_suffix(".part")
        written.write_text(str(port))
        written.rename(meeting)
    while not meeting.exists():
        time.sleep(0.05)
    slot = slots[rank]
    os.environ.update(
        HOROVOD_RANK=str(slot.rank),
        HOROVOD_SIZE=str(slot.size),
        HOROVOD_LOCAL_RANK=str(slot.local_rank),
        HOROVOD_LOCAL_SIZE=str(slot.local_size),
        HOROVOD_CROSS_RANK=str(slot.cross_rank),
        HOROVOD_CROSS_SIZE=str(slot.cross_size),
        HOROVOD_HOSTNAME=slot.hostname,
        HOROVOD_GLOO_RENDEZVOUS_ADDR=slots[0].hostname,
        HOROVOD_GLOO_RENDEZVOUS_PORT=meeting.read_text(),
    )


class Horovod:
    """The job that its launcher has started, or ours."""

    name = "horovod"
    version = horovod.__version__

    def __init__(self):
        if "PEER_HOSTS" in os.environ:
            _meet()
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
