"""One job after another in the same processes, of other sizes and sets."""

import os
import random
from pathlib import Path

import tensorflow as tf

import keras_ring as kr

RANKS = 3


def _held():
    """Returns what this process holds that a job might leave behind."""
    maps = Path("/proc/self/maps").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "segments": sum("keras_ring" in line for line in maps.splitlines()),
    }


def _enter(generation, rank, size, port):
    os.environ.update(
        KERAS_RING_RANK=str(rank),
        KERAS_RING_SIZE=str(size),
        KERAS_RING_RENDEZVOUS=f"127.0.0.1:{port}",
        KERAS_RING_GENERATION=str(generation),
    )
    os.environ.pop("KERAS_RING_RENDEZVOUS_FD", None)
    kr.init()


def _over(process_set, name):
    """Returns a traced sum over a set, which keeps the set's number."""

    @tf.function
    def total(x):
        return kr.allreduce(x, kr.Sum, name=name, process_set=process_set)

    return total


def _refused(function, x):
    try:
        function(x)
    except tf.errors.FailedPreconditionError as error:
        return "process set" in str(error)
    return False


def generations(ports, count, seed):
    """Returns how many there were, and what was held early and late."""
    own = int(os.environ["KERAS_RING_RANK"])
    draw = random.Random(seed)
    of_job = _over(kr.global_process_set, "of the job")
    gone = []
    took_part = 0
    held = []
    for generation in range(count):
        # Alike on all ranks: who takes part, in which order, and the set.
        members = draw.sample(range(RANKS), draw.choice([1, 2, 3, 3]))
        size = len(members)
        subset = sorted(draw.sample(range(size), draw.randint(1, size)))
        if own not in members:
            continue
        rank = members.index(own)
        _enter(generation, rank, size, ports[generation % len(ports)])
        assert (kr.rank(), kr.size()) == (rank, size)
        x = tf.constant([float(1 << own)])
        everyone = float(sum(1 << member for member in members))
        assert float(of_job(x)[0]) == everyone
        if len(subset) < size:
            some = kr.add_process_set(subset)
            traced = _over(some, "of the set")
            if rank in subset:
                expected = sum(1 << members[index] for index in subset)
                assert float(traced(x)[0]) == expected
                gone.append((generation, traced))
        for when, traced in gone[-4:]:
            assert when == generation or _refused(traced, x), when
        kr.shutdown()
        took_part += 1
        if generation in (count // 3, count // 3 + 1, count - 1, count - 2):
            held.append(_held())
    return took_part, held[0], held[-1]


def of_other_generations():
    """Returns the error of ranks that do not mean the same job."""
    os.environ["KERAS_RING_GENERATION"] = os.environ["KERAS_RING_RANK"]
    kr.init()
