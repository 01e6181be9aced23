"""A ring of equal ranks, in one process, that writes down what it is asked.

Ranks that hold the same tensors have known results: an average is the tensor,
a sum is a multiple of it, a gather repeats it. So training on such a ring must
give what plain Keras gives, and the list of calls says what was reduced, when
and under which name.
"""

import dataclasses
import inspect
import types
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring.core import arrays, reduce_ops, telemetry, topology
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.tensorflow import gathers, reduction_calls, reductions
from keras_ring.tensorflow.compression import Compression

# What ranks compare, by the names of exchanges.
_COMPARISONS = ("initial_values/", "training_state/", "fit/files")


@dataclasses.dataclass
class Call:
    """One collective, as it was asked for in Python."""

    kind: str
    name: str
    op: Any = None
    count: int = 1
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    process_set: ProcessSet = global_process_set


class EqualRanks:
    """Stands in for the collectives and for the topology."""

    def __init__(self):
        self.size = 2
        self.rank = 0
        self.calls = []
        self.comparisons = []

    def names(self, kind=None):
        return [c.name for c in self.calls if kind in (None, c.kind)]

    def _reduced(self, tensor, op, options):
        tensor = tf.convert_to_tensor(tensor)
        compression = options.get("compression") or Compression.none
        tensor, dtype = compression.compress(tensor)
        factor = options.get("prescale_factor", 1.0) * options.get(
            "postscale_factor", 1.0
        )
        if op is reduce_ops.Sum:
            factor *= self.size
        if op is reduce_ops.Product:
            tensor = tensor**self.size
        if factor != 1.0:
            tensor = tensor * tf.cast(factor, tensor.dtype)
        return compression.decompress(tf.identity(tensor), dtype)

    def allreduce(
        self,
        tensor,
        op=reduce_ops.Average,
        *,
        name=None,
        process_set=global_process_set,
        **options,
    ):
        self.calls.append(Call("allreduce", name, op, 1, options, process_set))
        return self._reduced(tensor, op, options)

    def grouped_allreduce(
        self,
        tensors,
        op=reduce_ops.Average,
        *,
        name=None,
        process_set=global_process_set,
        **options,
    ):
        self.calls.append(
            Call(
                "grouped_allreduce",
                name,
                op,
                len(tensors),
                options,
                process_set,
            )
        )
        return [self._reduced(tensor, op, options) for tensor in tensors]

    def allreduce_calls(self, calls):
        results = []
        for call in calls:
            options = {
                "prescale_factor": call.prescale_factor,
                "postscale_factor": call.postscale_factor,
                "compression": call.compression,
            }
            count = len(call.tensors)
            kind = "allreduce" if count == 1 else "grouped_allreduce"
            self.calls.append(
                Call(kind, call.name, call.op, count, options, call.process_set)
            )
            results.append(
                [self._reduced(t, call.op, options) for t in call.tensors]
            )
        return results

    def allgather(self, tensor, *, name=None, process_set=global_process_set):
        if name.startswith(_COMPARISONS):
            # At few updates, and not what the tests count.
            self.comparisons.append(name)
            return tf.concat([tensor] * self.size, axis=0)
        self.calls.append(
            Call(
                "allgather",
                name,
                count=tensor.shape[0],
                process_set=process_set,
            )
        )
        return tf.concat([tensor] * self.size, axis=0)

    def grouped_allgather(
        self, tensors, *, name=None, process_set=global_process_set
    ):
        rows = [tensor.shape[0] for tensor in tensors]
        self.calls.append(
            Call(
                "grouped_allgather",
                name,
                None,
                len(rows),
                {"rows": rows},
                process_set,
            )
        )
        return [tf.concat([t] * self.size, axis=0) for t in tensors]

    def alltoall(
        self,
        tensor,
        splits=None,
        *,
        name=None,
        process_set=global_process_set,
    ):
        self.calls.append(Call("alltoall", name, process_set=process_set))
        if splits is None:
            splits = [tensor.shape[0] // self.size] * self.size
        rows = [int(count) for count in splits]
        begin = sum(rows[: self.rank])
        mine = tensor[begin : begin + rows[self.rank]]
        counts = tf.constant([rows[self.rank]] * self.size, tf.int64)
        return tf.concat([mine] * self.size, axis=0), counts

    def broadcast(
        self, tensor, root_rank, *, name=None, process_set=global_process_set
    ):
        self.calls.append(Call("broadcast", name, process_set=process_set))
        return tf.identity(tensor)

    def broadcast_group(
        self, tensors, root_rank, name=None, process_set=global_process_set
    ):
        self.calls.append(
            Call("broadcast", name, count=len(tensors), process_set=process_set)
        )
        return [tf.identity(tensor) for tensor in tensors]

    # Of arrays, by the same ones.

    def allreduce_array(
        self,
        array,
        op=reduce_ops.Average,
        *,
        name=None,
        process_set=global_process_set,
        **options,
    ):
        return self.allreduce(
            array, op, name=name, process_set=process_set, **options
        ).numpy()

    def allreduce_group_array(
        self, arrays, op, *, name, process_set=global_process_set
    ):
        reduced = self.grouped_allreduce(
            arrays, op, name=name, process_set=process_set
        )
        return [each.numpy() for each in reduced]

    def allgather_array(
        self, array, *, name=None, process_set=global_process_set
    ):
        array = np.asarray(array)
        with tf.init_scope():
            return self.allgather(
                array, name=name, process_set=process_set
            ).numpy()

    def broadcast_array(
        self, array, root_rank, *, name=None, process_set=global_process_set
    ):
        self.broadcast(array, root_rank, name=name, process_set=process_set)
        return np.array(array)

    def broadcast_in_array(
        self,
        generation,
        array,
        root_rank,
        name,
        process_set=global_process_set,
    ):
        return self.broadcast_array(
            array, root_rank, name=name, process_set=process_set
        )

    def alltoall_array(
        self, array, splits=None, *, name=None, process_set=global_process_set
    ):
        received = self.alltoall(
            np.asarray(array), splits, name=name, process_set=process_set
        )
        return tuple(each.numpy() for each in received)

    def _topology(self):
        return types.SimpleNamespace(
            rank=self.rank, size=self.size, generation=0
        )

    def stand_ins(self):
        """Yields the functions it stands in for: module, name, stand-in.

        Raises:
            TypeError: If one cannot be called as what it stands in for.
        """
        for module, names in (
            (reductions, ("allreduce", "grouped_allreduce")),
            (reduction_calls, ("allreduce_calls",)),
            (gathers, ("allgather", "grouped_allgather", "alltoall")),
            (gathers, ("broadcast", "broadcast_group")),
        ):
            for name in names:
                stand_in = getattr(self, name)
                _check_parameters(getattr(module, name), stand_in)
                yield module, name, stand_in
        names = ("allreduce", "allreduce_group", "allgather", "alltoall")
        for name in (*names, "broadcast", "broadcast_in"):
            stand_in = getattr(self, f"{name}_array")
            _check_parameters(getattr(arrays, name), stand_in)
            yield arrays, name, stand_in
        for name, value in (
            ("is_initialized", lambda: True),
            ("size", lambda: self.size),
            ("local_size", lambda: self.size),
            ("rank", lambda: self.rank),
            ("topology", self._topology),
        ):
            yield topology, name, value
        # There is no runtime that knows.
        yield telemetry, "is_doing", lambda kind: False


def _check_parameters(real, stand_in) -> None:
    """Raises an error if the two take their arguments in other ways."""
    parameters = inspect.signature(stand_in).parameters
    rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {
        name: (p.kind, p.default)
        for name, p in parameters.items()
        if p.kind is not p.VAR_KEYWORD
    }
    wanted = {
        name: (p.kind, p.default)
        for name, p in inspect.signature(real).parameters.items()
        if name in named or not (rest and p.kind is p.KEYWORD_ONLY)
    }
    if named != wanted:
        raise TypeError(
            f"{real.__name__} takes {wanted}, and what stands in for it {named}"
        )
