"""Finds cache files that the input pipelines of several ranks would share.

`Dataset.cache(file)` writes the elements that it reads into a file once, and
reads them from that file from then on. If ranks name the same file, on one host
or on a file system that their hosts share, TensorFlow asks all but the first to
delete it. If the file exists already and the cache comes after the split of the
data, each rank reads what another program has put into it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import NamedTuple

from keras_ring._typing import Dataset
from keras_ring.core import arrays, topology
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    shares_nothing,
)
from keras_ring.keras.agreement.catching_up import exchanges_nothing
from keras_ring.keras.agreement.file_systems import shared_file_system
from keras_ring.keras.agreement.rank_names import rank_list
from keras_ring.keras.backends import backend, tf_data

_NONE = b"\0"
_SOME = b"\1"


def require_own_files(
    datasets: Iterable[object],
    name: str,
    process_set: ProcessSet = global_process_set,
    *,
    before_split: bool = False,
) -> None:
    """Raises an error on all ranks if two of them cache in the same file.

    Args:
        datasets: The datasets that this rank is about to read. Objects that
            are no `tf.data.Dataset` are ignored.
        name: String, the name of the exchange, the same on all ranks.
        process_set: The process set whose members compare. Defaults to all
            ranks.
        before_split: Boolean, whether the datasets are still to be split, so
            that all ranks may read the same complete cache file.

    Raises:
        ValueError: If two ranks do. The message names the file.
    """
    if (
        not topology.is_initialized()
        or exchanges_nothing(process_set)
        or shares_nothing(process_set)
        or not backend.is_eager()
    ):
        return
    files = sorted(
        {
            file
            for dataset in datasets
            if tf_data.is_dataset(dataset)
            for file in _files_of(dataset, before_split)
        }
    )
    rows = arrays.gather_digests(_SOME if files else _NONE, name, process_set)
    # All ranks take the same branch, because all have gathered the same rows.
    if not rows.any():
        return
    own = [_CacheFile(file, shared_file_system(file) or "") for file in files]
    by_rank = allgather_object(
        (topology.cross_rank(), own), f"{name}/names", process_set
    )
    ranks = collections.defaultdict(list)
    for rank, (host, found) in zip(process_set.ranks, by_rank, strict=True):
        for each in found:
            ranks[each, -1 if each.shared else host].append(rank)
    for (each, _), those in sorted(ranks.items()):
        if len(those) > 1:
            raise ValueError(_error(each, those))


class _CacheFile(NamedTuple):
    file: str
    shared: str  # the shared file system; empty if it is of this host


def _files_of(dataset: Dataset, before_split: bool) -> list[str]:
    # TensorFlow is there, since it has made the dataset.
    from keras_ring.keras.agreement import cached_datasets

    return list(cached_datasets.files_of(dataset, before_split))


def _error(cache: _CacheFile, ranks: list[int]) -> str:
    shown = rank_list(ranks)
    whose = (
        f"{shown}, whose hosts share {cache.shared},"
        if cache.shared
        else f"{shown} of this host"
    )
    return (
        f"Ranks {whose} cache a dataset in one file, {cache.file!r} "
        "(`Dataset.cache(filename)`). Each of them would write it, or be given "
        "what another one has written. Give each rank a file of its own, "
        "whose name has the number of ranks, too: "
        '`dataset.cache(f"{filename}-{kr.rank()}-of-{kr.size()}")`; or cache '
        "in memory: `dataset.cache()`."
    )
