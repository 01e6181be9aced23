"""How the gradients of a run were reduced."""

from unittest import mock

import keras_ring as kr
from keras_ring.core import operations
from keras_ring.tensorflow import gathers

# What ranks compare, before the first step and at few of those behind it.
_COMPARISONS = ("initial_values/", "training_state/", "data/shard", "fit/files")


class Counted:
    """Counts collectives, while it is entered.

    Attributes:
        collectives: How many were executed; a group is one. Without those
            that compare what ranks train.
        gathers: Boolean, whether rows were gathered, which the graph tells.
    """

    def __enter__(self):
        self._before = _executed()
        self._patch = mock.patch.object(
            gathers, "grouped_allgather", wraps=gathers.grouped_allgather
        )
        self._gather = self._patch.start()
        self._compare_patch = mock.patch.object(
            operations, "start", wraps=operations.start
        )
        self._compare = self._compare_patch.start()
        return self

    def __exit__(self, *_):
        self._patch.stop()
        self._compare_patch.stop()
        names = [call.args[1] for call in self._compare.call_args_list]
        compared = sum(name.startswith(_COMPARISONS) for name in names)
        self.collectives = _executed() - self._before - compared
        self.gathers = self._gather.called


def _executed():
    return kr.metrics()["entries"] if kr.size() > 1 else 0
