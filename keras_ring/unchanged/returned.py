"""Values that a step of the program's own returns, and that no metric has.

Keras passes on the values of the last step, which are those of a part of a
batch here. When the step is checked (`step_check`), it is found out whether a
value is a mean over rows, a sum over rows, or does not depend on them. Other
values, such as the root of a mean, cannot be combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Logs, Model
from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer import whole_batch
from keras_ring.tensorflow import reductions
from keras_ring.unchanged import row_semantics
from keras_ring.unchanged.row_semantics import Way, Ways

_OF_MODEL = "_keras_ring_returned"
# Between a result from a graph and one that is computed from the same state.
_TOLERANCE = 1e-6
_WAYS = (Way.MEAN, Way.SUM, Way.SAME)


class Returned:
    """The values that the steps of one model return, as far as known."""

    def __init__(self) -> None:
        # Made before a step is traced, which must not make variables later.
        with backend.outside_of_traces():
            self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        self._ways: dict[str, Ways] = {}

    def note_share(self) -> None:
        """Stores, in a step, the share of the batch that this rank has."""
        step = whole_batch.current()
        if step is not None:
            self._share.assign(step.share())

    def combined(
        self, logs: Logs, of_rank: Logs, of_all: Logs, name: str
    ) -> Logs:
        """Returns the values that a step would return for the whole batch.

        Args:
            logs: Dictionary, perhaps nested, of the values that the last step
                has returned.
            of_rank: Dictionary, the results of the metrics of this rank.
            of_all: Dictionary, the results of the metrics of all ranks.
            name: String, the prefix of the names of the collectives.
        """
        flat = dict(_flat(logs))
        found = {
            key: of_all[result]
            for key, result in _results(flat, of_rank, f"{name}/same").items()
        }
        others = {key: flat[key] for key in sorted(flat) if key not in found}
        parts = [
            self._part_of(key, leaf)
            for key, value in others.items()
            for leaf in backend.flatten(value)
        ]
        if parts:
            parts = reductions.grouped_allreduce(
                parts, op=reduce_ops.Sum, name=f"{name}/logs"
            )
        found.update(backend.pack(others, parts))
        return _replaced(logs, found)

    def try_ways(
        self,
        whole: tuple[Logs, Logs],
        parts: tuple[Logs, Logs],
        rows: tuple[int, int],
        num_bytes: int,
    ) -> str | None:
        """Narrows the possible ways of values by one batch and its parts.

        All ranks must call this.

        Args:
            whole: Tuple of the values that the step has returned for the whole
                batch, and the results of metrics after it.
            parts: The same for this rank's part.
            rows: Tuple of two integers, the rows of the batch and of the part.
            num_bytes: Integer, the bytes of the smallest type of the
                computation.

        Returns:
            String, the name of a value that cannot be combined, or `None`.
        """
        of_whole, of_part = dict(_flat(whole[0])), dict(_flat(parts[0]))
        name = "auto/step_check/values"
        results = _results(of_whole, whole[1], f"{name}/whole")
        of_parts = _results(of_part, parts[1], f"{name}/parts")
        keys = [
            key
            for key in sorted(of_whole.keys() & of_part.keys())
            if not (key in results and key in of_parts)
            and not tf.nest.is_nested(of_whole[key])
        ]
        found = row_semantics.possible(
            [np.asarray(of_whole[key]) for key in keys],
            [np.asarray(of_part[key]) for key in keys],
            *rows,
            name,
            num_bytes,
        )
        for key, possible in zip(keys, found, strict=True):
            possible = self._ways.get(key, frozenset(_WAYS)) & possible
            if not possible:
                return key
            self._ways[key] = possible
        return None

    def _part_of(self, key: str, value: Any) -> npt.NDArray[np.float64]:
        """Returns this rank's term of the sum that is the batch's value."""
        # Keras 2 has made Python numbers of the values.
        array = np.asarray(value)
        possible = self._ways.get(key, frozenset({Way.MEAN}))
        is_float = array.dtype.kind == "f"
        order = _WAYS if is_float else (Way.SUM, Way.SAME, Way.MEAN)
        way = next(each for each in order if each in possible)
        found = array.astype(np.float64)
        if way is Way.SAME:
            weight = float(topology.rank() == 0)
        else:
            weight = self._share.numpy() if way is Way.MEAN else 1.0
        # A mean over no rows is NaN, so it is not multiplied by 0.
        return found * weight if weight else np.zeros_like(found)


def of(model: Model) -> Returned:
    """Returns the `Returned` of a model, which is made if it has none."""
    found = vars(model).get(_OF_MODEL)
    if found is None:
        found = Returned()
        # Bypasses the model's own `__setattr__`, which tracks attributes.
        object.__setattr__(model, _OF_MODEL, found)
    returned: Returned = found
    return returned


def are_own(model: Model) -> bool:
    """Returns whether the steps of a model may return values of no metric."""
    return bool(steps.is_own_train_step(model) or steps.has_own_metrics(model))


def _results(
    values: Mapping[str, Any], results: Logs, name: str
) -> dict[str, str]:
    """Returns which values are results of metrics, on all ranks.

    A step may return the result of a metric under another name, or a value
    under the name of a metric that was not updated. So values are compared.

    Args:
        values: Dictionary of the values by their names.
        results: Dictionary of the results of metrics after the step.
        name: String, the name of the exchange.

    Returns:
        Dictionary, the name of a metric by the name of a value.
    """
    keys, names = sorted(values), sorted(results)
    if not keys or not names:
        return {}
    same = np.array(
        [
            [_is_same(values[key], results[each]) for each in names]
            for key in keys
        ],
        np.uint8,
    )
    same = arrays.allreduce(
        same, reduce_ops.Min, name=name, process_set=global_process_set
    )
    found = {}
    for row, key in zip(same, keys, strict=True):
        alike = [
            each for each, is_one in zip(names, row, strict=True) if is_one
        ]
        if alike:
            found[key] = key if key in alike else alike[0]
    return found


def _is_same(value: Any, result: Any) -> bool:
    if tf.nest.is_nested(value) or tf.nest.is_nested(result):
        return False
    one, other = np.asarray(value), np.asarray(result)
    return one.shape == other.shape and np.allclose(
        one.astype(np.float64),
        other.astype(np.float64),
        rtol=_TOLERANCE,
        atol=0.0,
        equal_nan=True,
    )


def _replaced(logs: Logs, values: Logs) -> Logs:
    """Returns new values in the structure and order of `logs`.

    Keras depends on the order.
    """
    return {
        key: _replaced(value, values)
        if isinstance(value, dict)
        else values[key]
        for key, value in logs.items()
    }


def _flat(logs: Logs) -> Iterator[tuple[str, Any]]:
    """Yields pairs of name and value, also of nested dictionaries."""
    for key, value in logs.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value
