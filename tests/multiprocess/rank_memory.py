"""How much memory a rank takes whose tensors others read where they lie."""

from pathlib import Path

import keras_ring as kr

# After keras_ring: its allocator comes with the import.
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

MIB = 1 << 20


def resident():
    """Returns the resident MiB of this process: all, shared, private."""
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
    )
    return [
        int(fields[name].split()[0]) // 1024
        for name in ("VmRSS", "RssShmem", "RssAnon")
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
        The largest of each of `resident()`, less what it was before, and
        `peer_bytes_unmapped` in MiB.
    """
    kr.init()
    sizes = [16, 1, 7, 30, 4]
    # Whatever TensorFlow and the runtime make once is made now.
    kr.allreduce(tf.ones([MIB]), kr.Sum, name="first")
    before = resident()
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
        most = [max(pair) for pair in zip(most, resident(), strict=True)]
    unmapped = kr.metrics()["peer_bytes_unmapped"] // MIB
    return [*(a - b for a, b in zip(most, before, strict=True)), unmapped]
