"""The GPUs of this process, as NVIDIA's driver shows them.

A process that asks for them opens the driver, after which it must not start
processes by `fork` alone.
"""

from __future__ import annotations

import dataclasses

from keras_ring.core import native


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        ordinal: Integer, its number for this process.
        name: String, such as `"NVIDIA H100 80GB HBM3"`.
        uuid: String, by which all processes know it: `"GPU-..."`.
        bus: String, its address on the PCI bus.
        bytes: Integer, all of its memory.
        capability: Pair of integers, its compute capability.
    """

    ordinal: int
    name: str
    uuid: str
    bus: str
    bytes: int
    capability: tuple[int, int]


def gpus() -> list[Gpu]:
    """Returns the GPUs that this process sees, in the driver's order."""
    core = native.core()
    try:
        return [Gpu(*row) for row in core.gpus()]
    except core.StatusError:
        return []


def versions() -> tuple[int, int]:
    """Returns the version of CUDA of the driver, and that of NCCL.

    Returns:
        Pair of integers as NVIDIA writes them, such as `(12080, 22809)`; `0`
        for what is not there.
    """
    core = native.core()
    try:
        driver, nccl = core.gpu_versions()
    except core.StatusError:
        return 0, 0
    return driver, nccl


def why_none() -> str:
    """Returns why this process sees no GPU, or `""` if it does."""
    core = native.core()
    try:
        return "" if core.gpus() else "the driver shows none to this process"
    except core.StatusError as error:
        return str(error.args[1])


def explanation(*, of_gpus: bool = False) -> str:
    """Returns how collectives are done in this job, and why: lines for people.

    Args:
        of_gpus: Boolean, whether of tensors in the memory of GPUs, if this
            process sees one. Defaults to those in host memory.
    """
    core = native.core()
    if of_gpus and not why_none():
        text: str = core.explain(gpus=True)
        return text
    return str(core.explain())
