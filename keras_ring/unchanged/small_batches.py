"""Batches with fewer rows than ranks, so that some ranks have no rows.

In steps of Keras' own, a rank without rows counts for nothing. In a step of the
program's own, a mean is 0 / 0 on such a rank, so that such a batch is an error:
before training if the data tell, or else when the batch is read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from keras_ring._typing import Dataset, Model, Structure
from keras_ring.core import topology
from keras_ring.core.notices import count
from keras_ring.errors import AutoError
from keras_ring.keras.lanes.batch_source import BatchIterator
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer import whole_batch
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.batch_rows import num_rows
from keras_ring.unchanged import script

# The message of TensorFlow when the assertion fails.
_BEFORE, _AFTER = "keras_ring: a batch of", "has fewer rows than ranks"
_FAILED = re.compile(rf"\[{_BEFORE}\] \[(\d+)\] \[{_AFTER}\]")
# Datasets of `tf.data` that pass batches on, perhaps in another order.
_PASSED_ON = ("Prefetch", "Cache", "Shuffle", "Options")


def are_for_all(model: Model, batch: Structure) -> bool:
    """Returns whether each rank trains on all rows of a small batch.

    They do if there are fewer rows than ranks and the step is the program's
    own. A mean over all rows is then the same on all ranks. Metrics count the
    rows once on each rank, so this is only used for batches that are trained on
    one by one.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.
    """
    rows = int(num_rows(batch))
    return rows < topology.size() and steps.is_own_train_step(model)


def refuse(model: Model, iterator: BatchIterator) -> None:
    """Refuses training batches that are too small for a model's step.

    Args:
        model: A `keras.Model`.
        iterator: The `BatchIterator`. If it is not known how many rows the
            batches have, its dataset is changed to fail at a small batch.

    Raises:
        AutoError: If it is known that there is a batch that is too small.
    """
    if not steps.is_own_train_step(model):
        return
    rows = _rows_of_smallest(iterator)
    if rows is not None and rows >= topology.size():
        return
    if rows is None or not _is_read_to_the_end(iterator):
        iterator.dataset = _checked(iterator.dataset)
        return
    source = iterator.source()
    of_what = "reads "
    if source.num_samples is not None:
        of_what += f"{count(source.num_samples, 'sample')} in "
    size = source.batch_size
    of_what += f"batches of {size}" if size is not None else "batches"
    text = _text(model, "the last", rows)
    raise AutoError(f"{script.line()} {of_what}, {text}")


@contextlib.contextmanager
def refusing(model: Model) -> Iterator[None]:
    """Turns TensorFlow's error at such a batch into an `AutoError`.

    The same holds for one whose tensors have different numbers of rows.

    Args:
        model: The `keras.Model` that trains in the context.

    Raises:
        AutoError: If a batch that is read is too small.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if whole_batch.UNEQUAL in str(error):
            raise AutoError(
                f"{script.line()} trains model {model.name!r}. "
                f"{whole_batch.UNEQUAL}."
            ) from None
        found = _FAILED.search(str(error))
        if found is None:
            raise
        text = _text(model, "one", int(found[1]))
        # Without the frames of Keras and TensorFlow, which are of no use.
        raise AutoError(f"{script.line()} reads batches, {text}") from None


def _text(model: Model, which: str, rows: int) -> str:
    ranks = topology.size()
    return (
        f"of which {which} has {count(rows, 'row')}, fewer than there are "
        f"ranks ({ranks}). Model {model.name!r} has a `train_step` or "
        "`compute_loss` of the program's own, whose means over no rows are no "
        "numbers, so each rank needs a row of each batch: leave the rest away "
        "(`drop_remainder=True`), or choose a `batch_size` that leaves "
        f"{ranks} rows or more for the last batch, or start fewer ranks. (The "
        "first axis of what a batch has is taken for its rows: if another one "
        "is that of the examples, move it there, `np.stack([a, b], axis=1)`, "
        "or give what is stacked as a tuple, `(a, b)`.)"
    )


def _rows_of_smallest(iterator: BatchIterator) -> int | None:
    """Returns the rows of the smallest batch, or `None` if unknown."""
    source = iterator.source()
    if source.num_samples is not None and source.batch_size is not None:
        return _rest(source.num_samples, source.batch_size)
    if source.batch_size is not None:
        return source.batch_size
    return _rows_of_last(iterator.dataset)


def _rows_of_last(dataset: Dataset) -> int | None:
    """Returns the rows of the last batch, or `None` if unknown.

    It is known if the dataset was batched last, apart from steps that pass
    batches on. `tf.data` does not tell, so internal attributes are read.
    """
    kind = _kind(dataset)
    while kind in _PASSED_ON:
        dataset = getattr(dataset, "_input_dataset", None)
        kind = _kind(dataset)
    size = getattr(dataset, "_batch_size", None)
    if kind not in ("Batch", "ParallelBatch") or size is None:
        return None
    samples = int(dataset._input_dataset.cardinality())
    return _rest(samples, int(size)) if samples > 0 else None


def _kind(dataset: Dataset) -> str:
    return type(dataset).__name__.strip("_").removesuffix("Dataset")


def _rest(samples: int, size: int) -> int:
    return min(samples, samples % size or size)


def _is_read_to_the_end(iterator: BatchIterator) -> bool:
    total = iterator.num_batches_of_data
    return total is not None and iterator.num_executed_batches() == total


def _checked(dataset: Dataset) -> Dataset:
    """Returns a dataset that raises an error at a batch that is too small."""
    ranks = topology.size()

    @do_not_convert
    def check(*element: Structure) -> Structure:
        batch = element[0] if len(element) == 1 else element
        rows = num_rows(batch)
        required = tf.debugging.Assert(
            rows >= ranks, [_BEFORE, rows, _AFTER], name="rows_of_ranks"
        )
        # In the dataset, because XLA removes assertions from a step.
        with tf.control_dependencies([required]):
            return tf.nest.map_structure(
                tf.identity, batch, expand_composites=True
            )

    return dataset.map(check).with_options(dataset.options())
