"""What ranks say of their first batches, without ranks."""

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from keras_ring.keras.agreement import same_batch


@pytest.fixture
def warned(monkeypatch):
    lines = []

    def warning(line, *values):
        # Others use this logger, too.
        if line.startswith("keras_ring: "):
            lines.append(line % values)

    monkeypatch.setattr(logging, "warning", warning)
    return lines


def rows(*sources):
    return np.array([np.frombuffer(each, np.uint8) for each in sources])


def split(seed):
    dataset = tf.data.Dataset.range(8).shuffle(8, seed=seed).shard(2, 0)
    return same_batch._split(dataset, 2)


def test_another_order_on_each_rank_is_said(warned):
    parts, first = split(1)
    _, second = split(2)
    same_batch._warn_if_split_differs(parts, rows(first, first))
    assert not warned
    same_batch._warn_if_split_differs(parts, rows(first, second))
    (line,) = warned
    assert "seeds, files or contents differ" in line


def test_no_seed_is_said(warned):
    # That of another test would be that of this dataset.
    tf.random.set_seed(None)
    parts, source = split(None)
    same_batch._warn_if_split_differs(parts, rows(source, source))
    (line,) = warned
    assert "another order" in line


@pytest.mark.parametrize("dataset", [None, object()])
def test_what_cannot_be_looked_into_is_no_error(warned, dataset):
    """Raised on one rank alone it would leave the others waiting."""
    parts, unknown = same_batch._split(dataset, 2)
    assert parts == []
    _, known = split(1)
    same_batch._warn_if_split_differs(parts, rows(known, unknown))
    same_batch._warn_if_split_differs(parts, rows(unknown, unknown))
    assert not warned
