"""Plain `MPI_Allreduce` on NumPy arrays, without a framework above it.

A tensor is a call, one after another, as MPI programs write it; a group is
packed into one buffer. Out of place, so that every run starts from the same.
"""

import numpy as np
import peer_main
from mpi4py import MPI

from keras_ring.bench import contents
from keras_ring.bench.system import Prepared

_OPS = {"Sum": MPI.SUM, "Min": MPI.MIN, "Max": MPI.MAX, "Product": MPI.PROD}


class Mpi:
    """`MPI_COMM_WORLD`."""

    name = "mpi"
    version = MPI.Get_library_version().splitlines()[0].split(",")[0]

    def __init__(self):
        self._world = MPI.COMM_WORLD
        self.rank = self._world.rank
        self.size = self._world.size

    def barrier(self):
        self._world.Barrier()

    def gather(self, values):
        return np.array(self._world.allgather(values))

    def counters(self):
        return {}

    def prepare(self, case):
        op = _OPS[case.op]
        inputs = contents.arrays(case, self.rank)
        one = inputs[0].dtype.type(1)

        def made():
            return [x * one for x in inputs] if case.fresh else inputs

        # Made once, as an MPI program would.
        results = [np.empty_like(x) for x in inputs]
        packed = np.empty(sum(x.size for x in inputs), case.dtype)
        reduced = np.empty_like(packed)
        ends = np.cumsum([x.size for x in inputs])[:-1]
        parts = [
            part.reshape(shape)
            for part, shape in zip(
                np.split(reduced, ends), case.shapes, strict=True
            )
        ]

        def separate():
            for tensor, result in zip(made(), results, strict=True):
                self._world.Allreduce(tensor, result, op)
            return results

        def grouped():
            np.concatenate([x.reshape(-1) for x in made()], out=packed)
            self._world.Allreduce(packed, reduced, op)
            return parts

        return Prepared(
            grouped if case.grouped else separate,
            contents.expected(case, self.size),
        )


if __name__ == "__main__":
    peer_main.main(Mpi)
