"""Gives each rank different random numbers, all derived from one seed.

Ranks that hold the same state of a generator draw the same numbers: the same
dropout masks, noise and latents for different examples, which is one draw for
the whole batch. So wherever state is shared, the index of the rank is folded
into the state of each generator. This is the one place that does it.

The state of a `keras.random.SeedGenerator` is two words: the seed, and how
often it was drawn from. At index `p`, which is `0` for the rank whose state is
shared, it becomes

    seed XOR mix(p), count + p

and that of a `tf.random.Generator` (a counter, and the key behind it), which
has no count of draws,

    counter, key XOR mix(p)

where `mix` is the finalizer of MurmurHash3 for 32 bits (Austin Appleby, public
domain). It is one-to-one, so no two indices get the same seed from one, and
`mix(0) = 0`, so the rank that is followed keeps its own state. From that it
follows that sharing again gives each rank the same seed again: it does not
drift with the number of calls of `fit`.

The second word is for `keras.random` without a seed. There, Keras takes both
words for a seed and puts each of them through a permutation of the numbers
below 933199 at each draw. Seeds of two ranks may meet in so few numbers, but
second words that differ by less than that never do.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from keras_ring._typing import Tensor, Variable
from keras_ring.core import arrays, topology
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.backends import backend

_WORD = 0xFFFFFFFF


def index_of(rank: int, root_rank: int, process_set: ProcessSet) -> int:
    """Returns the index of a rank, counted from `root_rank`."""
    ranks = process_set.ranks
    return (ranks.index(rank) - ranks.index(root_rank)) % len(ranks)


def is_state(variable: Variable) -> bool:
    """Returns whether a variable is the state of a `SeedGenerator` of Keras.

    A model has such states among its variables, but none of other generators.
    """
    return (
        getattr(variable, "name", "") == "seed_generator_state"
        and tuple(variable.shape) == (2,)
        and "int" in backend.dtype_name(variable)
    )


def fold(
    variables: Iterable[Variable], root_rank: int, process_set: ProcessSet
) -> None:
    """Folds the index of this rank into states that all ranks share.

    Args:
        variables: The states of generators, equal on all ranks.
        root_rank: Integer, the rank whose states they are.
        process_set: A `kr.ProcessSet`, whose ranks share them.
    """
    index = index_of(topology.rank(), root_rank, process_set)
    for variable in variables:
        variable.assign(folded(backend.as_tensor(variable), index))


def share_generator(
    root_rank: int, process_set: ProcessSet, *, fold_rank: bool
) -> None:
    """Shares the generator that the framework itself has, if layers use it.

    All members must call this. Others than `root_rank` get a generator whose
    seed is derived from the state of that one.

    Args:
        root_rank: Integer, the rank whose state is shared.
        process_set: A `kr.ProcessSet`, whose ranks share it.
        fold_rank: Boolean, whether ranks then draw different numbers.
    """
    state = backend.random_state()
    if state is None:
        return
    state = arrays.broadcast(
        state, root_rank, name="random_state", process_set=process_set
    )
    index = index_of(topology.rank(), root_rank, process_set)
    if not fold_rank:
        backend.set_random_state(state)
    elif index:
        backend.seed_random(zlib.crc32(state.tobytes()) ^ mix(index))


def folded(state: Tensor, index: int) -> Tensor:
    """Returns the state of a generator at an index.

    Args:
        state: A tensor of integers, of one dimension. With two words, that of
            a `keras.random.SeedGenerator`; with more, that of a
            `tf.random.Generator`.
        index: Integer, at least 0.

    Returns:
        A tensor of the same type and shape.
    """
    count = state.shape[0]
    key, counted = np.zeros([2, count], np.int64)
    key[0 if count == 2 else -1] = mix(index)
    if count == 2:
        counted[1] = index
    return backend.folded(state, key, counted)


def mix(index: int) -> int:
    """Returns a hash of 32 bits, different for each index below 2^32."""
    bits = index & _WORD
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = ((bits ^ (bits >> shift)) * factor) & _WORD
    return bits ^ (bits >> 16)
