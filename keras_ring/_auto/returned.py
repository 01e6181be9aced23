"""Values that a step of the program's own returns, and that no metric keeps.

Keras hands on what the last step has returned. Of a part of a batch, that is
the value of the part. What it is of the whole batch is found out where the step
is checked (`step_check`): a mean over rows, a sum over rows, or what does not
depend on them. Other values, such as a root of a mean, do not come together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._auto import ways
from keras_ring._auto.ways import Way, Ways
from keras_ring._keras.steps import steps
from keras_ring._ops import reductions
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training import whole_batch
from keras_ring._typing import Logs, Model
from keras_ring.core import arrays, reduce_ops

_OF_MODEL = "_keras_ring_returned"
# Of a result that a graph has made, and one that is made of the same state.
_TOLERANCE = 1e-6
_WAYS = (Way.MEAN, Way.SUM, Way.SAME)


class Returned:
    """What is known of the values that the steps of one model return."""

    def __init__(self) -> None:
        # Before a step is traced, which must make no variables later.
        with tf.init_scope():
            self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        self._ways: dict[str, Ways] = {}

    def note_share(self) -> None:
        """Takes note, in a step, of which share of the batch this rank has."""
        step = whole_batch.current()
        if step is not None:
            self._share.assign(step.share())

    def combined(
        self, logs: Logs, of_rank: Logs, of_all: Logs, name: str
    ) -> Logs:
        """Returns what a step would have returned of the whole batch.

        Args:
            logs: What the last step has returned, in whichever structure.
            of_rank: The results of the metrics of this rank.
            of_all: Those of all ranks.
            name: String, what the names of the collectives begin with.
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
            for leaf in tf.nest.flatten(value)
        ]
        if parts:
            parts = reductions.grouped_allreduce(
                parts, op=reduce_ops.Sum, name=f"{name}/logs"
            )
        found.update(tf.nest.pack_sequence_as(others, parts))
        return _replaced(logs, found)

    def try_ways(
        self,
        whole: tuple[Logs, Logs],
        parts: tuple[Logs, Logs],
        rows: tuple[int, int],
        num_bytes: int,
    ) -> str | None:
        """Finds out what values are; returns the name of one that is nothing.

        All ranks must call this.

        Args:
            whole: What the step has returned of a whole batch, and the
                results of metrics after it.
            parts: The same of this rank's part.
            rows: Two integers, of the batch and of the part.
            num_bytes: Integer, of the smallest type that they were computed in.
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
        found = ways.possible(
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
        """Returns what, added up over ranks, is the value of the batch."""
        # Keras 2 has made numbers of Python of them.
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
        # Of no rows, a mean is no number.
        return found * weight if weight else np.zeros_like(found)


def of(model: Model) -> Returned:
    """Returns what is known of the values that the steps of a model return."""
    found = vars(model).get(_OF_MODEL)
    if found is None:
        found = Returned()
        # Past the model's own `__setattr__`, which tracks what is set.
        object.__setattr__(model, _OF_MODEL, found)
    returned: Returned = found
    return returned


def are_own(model: Model) -> bool:
    """Whether the steps of a model may return what is no metric's."""
    return bool(steps.is_own_train_step(model) or steps.has_own_metrics(model))


def _results(
    values: Mapping[str, Any], results: Logs, name: str
) -> dict[str, str]:
    """Returns which values are the results of metrics, on all ranks.

    A step may return the result of a metric by another name, or a value by the
    name of a metric that nothing has updated.

    Args:
        values: By their names.
        results: The results of metrics, as they are after the step.
        name: String, of the exchange.
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
    """Returns results of the same structure, whose order Keras goes by."""
    return {
        key: _replaced(value, values)
        if isinstance(value, dict)
        else values[key]
        for key, value in logs.items()
    }


def _flat(logs: Logs) -> Iterator[tuple[str, Any]]:
    """Yields results by name, also those in dictionaries inside."""
    for key, value in logs.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value
