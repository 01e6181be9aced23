"""`torch.distributed` with gloo, on CPU tensors.

A tensor is an asynchronous operation, all are started before the first is
waited for; a group is packed into one buffer. With PEER_BUCKET_BYTES tensors
are copied into buckets of that size, whose operations overlap, and results
back out of them, as DistributedDataParallel does. gloo works in place; the
inputs are copied back between two runs.
"""

import os

import numpy as np
import peer_main
import torch
import torch.distributed as dist

from keras_ring.bench import contents
from keras_ring.bench.system import Prepared

_OPS = {
    "Sum": dist.ReduceOp.SUM,
    "Min": dist.ReduceOp.MIN,
    "Max": dist.ReduceOp.MAX,
    "Product": dist.ReduceOp.PRODUCT,
}


class TorchGloo:
    """The default process group. The launcher says which rank this is."""

    name = "torch gloo"
    version = torch.__version__

    def __init__(self):
        self.rank = int(os.environ["KERAS_RING_RANK"])
        self.size = int(os.environ["KERAS_RING_SIZE"])
        store = peer_main.results_path().with_name("torch_store").resolve()
        # The ranks share the cores with each other.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // self.size))
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=self.rank,
            world_size=self.size,
        )

    def barrier(self):
        dist.barrier()

    def gather(self, values):
        own = torch.from_numpy(np.ascontiguousarray(values))
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own)
        return torch.stack(rows).numpy()

    def counters(self):
        return {}

    def prepare(self, case):
        op = _OPS[case.op]
        inputs = [torch.from_numpy(x) for x in contents.arrays(case, self.rank)]
        buffers = [x.clone() for x in inputs]

        def reset():
            for buffer, tensor in zip(buffers, inputs, strict=True):
                buffer.copy_(tensor)

        def made():
            return [x * 1 for x in inputs] if case.fresh else buffers

        def separate():
            tensors = made()
            works = [dist.all_reduce(x, op, async_op=True) for x in tensors]
            for work in works:
                work.wait()
            return tensors

        buckets = _make_buckets(inputs)

        def bucketed():
            tensors = made()
            works = []
            # Backwards, as gradients come.
            for places, bucket, parts in buckets:
                for place, part in zip(places, parts, strict=True):
                    part.copy_(tensors[place])
                works.append(dist.all_reduce(bucket, op, async_op=True))
            for work, (places, _, parts) in zip(works, buckets, strict=True):
                work.wait()
                for place, part in zip(places, parts, strict=True):
                    tensors[place].copy_(part)
            return tensors

        def grouped():
            packed = torch.cat([x.reshape(-1) for x in made()])
            dist.all_reduce(packed, op)
            parts = packed.split([x.numel() for x in inputs])
            return [
                part.view(shape)
                for part, shape in zip(parts, case.shapes, strict=True)
            ]

        return Prepared(
            grouped if case.grouped else bucketed if buckets else separate,
            contents.expected(case, self.size),
            reset,
        )


def _make_buckets(tensors):
    """Returns (places of tensors, bucket, its parts) of each bucket.

    None if tensors are to be reduced one by one.
    """
    most = int(os.environ.get("PEER_BUCKET_BYTES", "0"))
    if not most:
        return []
    buckets, places, size = [], [], 0
    for place in reversed(range(len(tensors))):
        places.append(place)
        size += tensors[place].nbytes
        if size >= most or place == 0:
            buckets.append(_make_bucket(places, tensors))
            places, size = [], 0
    return buckets


def _make_bucket(places, tensors):
    inside = [tensors[place] for place in places]
    bucket = inside[0].new_empty(sum(x.numel() for x in inside))
    parts = bucket.split([x.numel() for x in inside])
    shaped = [part.view(x.shape) for part, x in zip(parts, inside, strict=True)]
    return places, bucket, shaped


if __name__ == "__main__":
    peer_main.main(TorchGloo)
