"""What a rank does: it trains each case."""

import dataclasses
import hashlib
from typing import Any

import keras
import numpy as np

import keras_ring as kr
from tests.keras.parity.cases import CASES
from tests.keras.parity.counting import Counted


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a rank has of a case.

    Attributes:
        weights: Arrays of float64, by variable.
        digest: String, of their bits.
        collectives: How many tensors were reduced, not counting what ranks
            compare.
    """

    weights: list[Any]
    digest: str
    collectives: int


def train(names):
    """Trains cases.

    Args:
        names: A list of their names, in an order that all ranks share.

    Returns:
        A dictionary of `Trained`, by name.
    """
    kr.init()
    by_name = {case.name: case for case in CASES}
    return {name: _train(by_name[name]) for name in names}


def _train(case):
    print(case.name, flush=True)
    keras.backend.clear_session()
    wide = case.policy == "float64"
    keras.config.set_floatx("float64" if wide else "float32")
    keras.config.set_dtype_policy(case.policy)
    # The same initial weights on all ranks.
    keras.utils.set_random_seed(11)
    with Counted() as counted:
        weights = [keras.ops.convert_to_numpy(v) for v in case.train()]
    checksum = hashlib.sha256()
    for array in weights:
        checksum.update(np.ascontiguousarray(array).tobytes())
    return Trained(
        [np.asarray(array, "float64") for array in weights],
        checksum.hexdigest(),
        counted.collectives,
    )
