"""Who takes part in a test: all ranks, or a process set in their place.

What is tested of a job is so tested of a set, too. Ranks are counted in the
group.
"""

import keras_ring as kr

_process_set = None


def begin(ranks=None):
    """Joins the job. Returns whether this rank takes part.

    Args:
        ranks: Those of the process set, in any order; `None` for all.
    """
    global _process_set
    kr.init(process_sets=None if ranks is None else [ranks])
    _process_set = kr.global_process_set
    if ranks is not None:
        from keras_ring.core import process_sets

        _process_set = process_sets.with_ranks(ranks)
        assert _process_set.process_set_id == 1
    return _process_set.included()


def rank():
    return _process_set.rank()


def size():
    return _process_set.size()


def in_job(rank):
    """The rank in the job of a rank in the group: what `root_rank` takes."""
    return _process_set.ranks[rank]


def process_set():
    return _process_set
