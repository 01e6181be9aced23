"""How much memory a rank takes whose tensors others read where they lie."""

import resource
from pathlib import Path

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

MIB = 1 << 20


def memory():
    """Returns the MiB that this process takes: all, shared, private.

    Of a page that several processes have mapped, its share: what ranks read
    of each other's tensors is there once.
    """
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    return [
        int(fields[name].split()[0]) // 1024
        for name in ("Pss", "Pss_Shmem", "Pss_Anon")
    ]


def view(tensor):
    """A NumPy array in a tensor's memory; `tensor.numpy()` is a copy."""
    return np.asarray(memoryview(tensor))


def many_tensors(total_mib, live_mib):
    """Reduces ever new tensors, of which the last ones stay alive.

    Args:
        total_mib: Of all tensors that are reduced.
        live_mib: Of those that are alive at a time.

    Returns:
        The largest of each of `memory()`, less what it was before.
    """
    kr.init()
    sizes = [16, 1, 7, 30, 4]
    # Whatever TensorFlow and the runtime make once is made now.
    kr.allreduce(tf.ones([MIB]), kr.Sum, name="first")
    before = memory()
    most = list(before)
    live, reduced, step = [], 0, 0
    while reduced < total_mib:
        mib = sizes[step % len(sizes)]
        tensor = tf.fill([mib * MIB // 4], float(kr.rank() + step))
        total = kr.allreduce(tensor, kr.Sum, name=f"tensor of {mib}")
        expected = sum(float(r + step) for r in range(kr.size()))
        if not bool(tf.reduce_all(total == expected)):
            raise ValueError(f"a wrong sum in step {step}")
        live += [tensor, total]
        while sum(each.shape[0] for each in live) > live_mib * MIB // 4:
            live.pop(0)
        reduced += mib
        step += 1
        most = [max(pair) for pair in zip(most, memory(), strict=True)]
    return [a - b for a, b in zip(most, before, strict=True)]


def page_faults(num_tensors, mib, steps):
    """Reduces the same tensors in each step, as a training its gradients.

    Args:
        num_tensors: Integer.
        mib: Of each of them.
        steps: Integer.

    Returns:
        For each step, how many pages of memory, or stretches of 16 pages, the
        system had to map into this process.
    """
    kr.init()
    tensors = [tf.fill([mib * MIB // 4], 1.0) for _ in range(num_tensors)]

    @tf.function
    def step():
        return kr.grouped_allreduce(tensors, kr.Sum, name="gradients")

    faults = []
    for _ in range(steps):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for total in step():
            np.testing.assert_array_equal(total[:5], kr.size())
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        faults.append(after - before)
    return faults
