"""Walks a `tf.data.Dataset` from its end to its sources."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from keras_ring._typing import Dataset, Graph, Tensor
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.agreement.same_data import (
    OTHERWISE,
    Part,
    array_part,
    compare,
    is_compared,
)
from keras_ring.keras.backends import tf_data


def require_same_dataset(
    dataset: Dataset,
    process_set: ProcessSet = global_process_set,
    otherwise: str = OTHERWISE,
) -> None:
    """Raises an error on all ranks if their datasets differ.

    Args:
        dataset: A `tf.data.Dataset`.
        process_set: The process set whose members compare. Defaults to all
            ranks.
        otherwise: String, the advice of the error to programs whose ranks
            have different data on purpose.

    Raises:
        ValueError: If they differ, or the order of their elements is random.
    """
    if is_compared(process_set):
        compare(list(_dataset_parts(dataset)), process_set, otherwise)


def parts_before_split(dataset: Dataset, num_ranks: int) -> list[Part]:
    """Returns the parts of a dataset that come before `Dataset.shard`.

    They must be the same on all ranks. Nothing is sent.

    Args:
        dataset: A `tf.data.Dataset`.
        num_ranks: Integer, the number of ranks. A `shard` into another number
            of parts is not a split between ranks.

    Returns:
        A list of `Part`s, empty if the dataset has no such `shard`.
    """
    for node in tf_data.nodes(dataset):
        count = getattr(node, "_num_shards", None)
        if count is not None and int(count) == num_ranks:
            sources = node._inputs()
            return [p for source in sources for p in _dataset_parts(source)]
    return []


def _dataset_parts(dataset: Dataset) -> Iterator[Part]:
    """Yields the parts that a dataset and its sources depend on."""
    yield Part("the number of elements", str(int(dataset.cardinality())))
    in_any_order = dataset.options().deterministic is False
    for node in tf_data.nodes(dataset):
        kind = type(node).__name__.strip("_")
        if hasattr(node, "_seed") and hasattr(node, "_seed2"):
            yield _seed_part(f"the seed of {kind}", node._seed, node._seed2)
        if hasattr(node, "_num_shards") and hasattr(node, "_index"):
            shard = f"{int(node._index)} of {int(node._num_shards)}"
            yield Part(f"the part that {kind} takes", shard)
        parallel = getattr(node, "_deterministic", None)
        if parallel == "false" or (
            parallel == "default" and in_any_order and "Parallel" in kind
        ):
            yield Part(f"{kind} that is not deterministic", "", None, True)
        for name in ("_tensors", "_filenames"):
            found = getattr(node, name, None)
            for tensor in found if isinstance(found, list) else [found]:
                if isinstance(tensor, tf.Tensor) and tensor.dtype not in (
                    tf.variant,
                    tf.resource,
                ):
                    yield array_part(
                        f"the contents of {kind}",
                        tf.reshape(
                            tensor, tf.concat([[-1], tensor.shape[1:]], 0)
                        ),
                    )
        for function in node._functions():
            yield from _function_parts(function.function.graph.as_graph_def())


def _function_parts(graph: Graph) -> Iterator[Part]:
    """Yields the seeds of shuffles inside a function of a dataset."""
    bodies = [graph.node, *(f.node_def for f in graph.library.function)]
    for body in bodies:
        constants = {
            node.name: tf.make_ndarray(node.attr["value"].tensor)
            for node in body
            if node.op == "Const"
            and node.attr["dtype"].type == tf.int64.as_datatype_enum
        }
        for node in body:
            if not node.op.startswith(("ShuffleDataset", "ShuffleAndRepeat")):
                continue
            # The inputs are dataset, buffer size, seed and second seed.
            seeds = [constants.get(i.split(":")[0]) for i in node.input[2:4]]
            if all(seed is not None for seed in seeds):
                yield _seed_part(f"the seed of {node.op}", *seeds)


def _seed_part(what: str, seed: Tensor, seed2: Tensor) -> Part:
    seeds = (int(seed), int(seed2))
    # TensorFlow has zeros if no seed was given, neither here nor to
    # `tf.random.set_seed`, and then draws the seeds anew.
    is_random = seeds == (0, 0)
    text = "no seed was given" if is_random else f"seeds {seeds}"
    return Part(what, text, None, is_random)
