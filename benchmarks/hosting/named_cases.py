"""The cases of `hosts.py` by what they are called on its command line."""

import argparse
import dataclasses

from keras_ring.bench import cases, shapes
from keras_ring.launch.cli.bench_arguments import COMPRESSIONS, parse_bytes

# A sum, because not every system divides; all reduce float32.
_SETTINGS = {"dtype": "float32", "op": "Sum"}


def parse_case(text):
    """Returns the case of `"64KiB"`, `"resnet50"` or `"resnet50:fp16"`.

    Raises:
        ValueError: If it is none.
    """
    what, colon, compression = text.partition(":")
    if colon and compression not in COMPRESSIONS:
        raise ValueError(f"{text!r}: {compression!r} is not of {COMPRESSIONS}")
    if what in shapes.STEPS:
        case = cases.step(what, grouped=False, fresh=False, **_SETTINGS)
    else:
        case = _single(what)
    compressed = cases.compressed(case, compression or "none")
    return dataclasses.replace(compressed, name=text)


def _single(text):
    try:
        (case,) = cases.allreduce([parse_bytes(text)], **_SETTINGS)
    except argparse.ArgumentTypeError:
        sets = ", ".join(shapes.STEPS)
        raise ValueError(
            f"{text!r} is neither a size, as 64KiB, nor one of {sets}"
        ) from None
    return case
