"""Compares the weights of a model between ranks."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_ring._budget import Budget
from keras_ring._keras import own
from keras_ring._launch_protocol import cores
from keras_ring._model_optimizers import is_local, optimizers_of
from keras_ring._ops import arrays
from keras_ring._ops.names import variable_path
from keras_ring._runtime import process_sets, topology
from keras_ring._runtime.process_sets import ProcessSet, global_process_set
from keras_ring.errors import ConsistencyError
from keras_ring.sync_batch_normalization import SyncBatchNormalization

_DIGEST_BYTES = 16
_PIECE = 8 << 20  # bytes that one thread takes at a time
_ALLOWANCE = 1.0  # seconds of checks at the ends of epochs


def compared_weights(model: Any) -> list[Any]:
    """Returns the weights that must be the same on all ranks.

    Those that were made to be trained, frozen or not, but for those that were
    registered as local to each rank. Others are a layer's own:
    `keras.layers.BatchNormalization` keeps statistics of the batches of its
    rank.
    """
    weights: list[Any] = []
    for layer in model._flatten_layers():
        if isinstance(layer, SyncBatchNormalization) or getattr(
            layer, "synchronized", False
        ):
            weights.extend(layer.weights)
        else:
            weights.extend(own.made_trainable(layer))
    optimizers = optimizers_of(model)
    return list(
        {id(w): w for w in weights if not is_local(w, optimizers)}.values()
    )


def require_consistent(
    model: Any,
    when: str,
    process_set: ProcessSet = global_process_set,
    wish: int = 0,
    *,
    but: Iterable[Any] = (),
) -> int:
    """Raises an error on all ranks if their weights differ.

    Args:
        model: A `keras.Model`.
        when: String, for the error, such as "after epoch 3".
        process_set: Whose members train the model. Defaults to all ranks.
        wish: Integer, not negative, that travels with the fingerprint.
        but: Variables that are not compared.

    Returns:
        The largest `wish` of all ranks.

    Raises:
        ConsistencyError: If they differ; it names the first weight that does,
            and the ranks.
    """
    if process_sets.is_alone(process_set):
        return wish
    left_out = {id(own.tf_variable(each)) for each in but}
    weights = [
        weight
        for weight in compared_weights(model)
        if id(own.tf_variable(weight)) not in left_out
    ]
    found, wishes = _compared(weights, "consistency", process_set, wish=wish)
    if found is None:
        return wishes
    if found.counts:
        raise ConsistencyError(
            f"The ranks do not train the same model: {when}, ranks "
            f"{process_set.ranks} have {found.counts} weights."
        )
    raise ConsistencyError(
        f"The weights of the ranks differ: {when}, {found.count} of "
        f"{len(weights)} do, the first being {found.path!r}, of which "
        f"{found.ranks}. Something changes "
        "weights on some ranks only: a callback, code under "
        "`if kr.rank() == 0`, an update inside `kr.allow_local_updates()`, or "
        "initial weights that were not shared ("
        "`kr.callbacks.BroadcastGlobalVariablesCallback`)."
    )


class EpochComparison:
    """Compares weights at the ends of epochs, as often as it is cheap.

    After each of the first epochs, until that has taken a second; then so
    rarely that it takes a hundredth of the time; and at the end.

    Args:
        but: Variables that are not compared.
    """

    def __init__(self, but: Iterable[Any] = ()) -> None:
        self._but = list(but)
        self._budget = Budget(_ALLOWANCE)
        self._is_left_out = False

    def at_epoch_end(
        self, model: Any, epoch: int, process_set: ProcessSet
    ) -> None:
        """Compares after epoch number `epoch`, if it is time to."""
        self._is_left_out = not self._budget.is_due()
        if not self._is_left_out:
            self._compare(model, f"after epoch {epoch + 1}", process_set)

    def at_end(self, model: Any, process_set: ProcessSet) -> None:
        """Compares at the end, if it was left out after the last epoch."""
        if self._is_left_out:
            self._compare(model, "at the end of the training", process_set)

    def _compare(self, model: Any, when: str, process_set: ProcessSet) -> None:
        with self._budget.checking():
            periods = require_consistent(
                model,
                when,
                process_set,
                self._budget.wish(),
                but=self._but,
            )
        self._budget.agreed(max(1, periods))


@dataclasses.dataclass(frozen=True)
class Difference:
    """What the values of variables on several ranks have not in common.

    Args:
        counts: The number of variables of each rank, where they differ.
        count: How many variables differ.
        path: The path of the first that does.
        ranks: Which ranks have which value of it, in words.
    """

    counts: list[int] = dataclasses.field(default_factory=list)
    count: int = 0
    path: str = ""
    ranks: str = ""


def first_difference(
    variables: Sequence[Any],
    name: str,
    process_set: ProcessSet,
    values: Iterable[Any] | None = None,
) -> Difference | None:
    """Compares the values of variables between ranks.

    Args:
        variables: The variables, in an order that all ranks share.
        name: String, the name of the exchange, the same on all ranks.
        process_set: Whose members compare.
        values: The values of the variables, as arrays. Defaults to those that
            they have now.

    Returns:
        What differs, the same on all members, or `None`.
    """
    return _compared(variables, name, process_set, values)[0]


def _compared(
    variables: Sequence[Any],
    name: str,
    process_set: ProcessSet,
    values: Iterable[Any] | None = None,
    wish: int = 0,
) -> tuple[Difference | None, int]:
    """Returns what differs between ranks, and the largest `wish` of them."""
    if values is None:
        values = (own.as_numpy(variable) for variable in variables)
    digests = _digests(values)
    together = hashlib.blake2b(b"".join(digests), digest_size=_DIGEST_BYTES)
    content = together.digest() + wish.to_bytes(8, "little")
    gathered = _gathered(content, name, process_set)
    wishes = np.ascontiguousarray(gathered[:, _DIGEST_BYTES:]).view("<u8")
    largest = int(wishes.max())
    gathered = gathered[:, :_DIGEST_BYTES]
    # Of ranks that have joined there is nothing, nor which they are.
    if (gathered == gathered[0]).all() or len(gathered) < process_set.size():
        return None, largest
    # The same branch on all ranks, because of what all have gathered.
    count = len(variables).to_bytes(8, "little")
    counts = _gathered(count, f"{name}/count", process_set)
    if not (counts == counts[0]).all():
        numbers = counts.view("<u8").flatten().tolist()
        return Difference(counts=numbers), largest
    by_rank = _gathered(b"".join(digests), f"{name}/weights", process_set)
    by_rank = by_rank.reshape(process_set.size(), len(variables), _DIGEST_BYTES)
    differs = (by_rank != by_rank[0]).any(axis=(0, 2))
    first = int(np.argmax(differs))
    difference = Difference(
        count=int(differs.sum()),
        path=str(variable_path(variables[first])),
        ranks=_grouped(by_rank[:, first], process_set.ranks),
    )
    return difference, largest


def digest(weight: Any) -> bytes:
    """Returns a fingerprint of the bits of a variable.

    Of checksums of its pieces, which are made at several times the speed of a
    cryptographic hash: differences between ranks are accidents.
    """
    return _joined(map(zlib.crc32, _pieces(own.as_numpy(weight))))


def _digests(values: Iterable[Any]) -> list[bytes]:
    """Returns the fingerprints of arrays, made in threads."""
    threads = cores.available() // topology.local_size()
    if threads <= 1:
        return [_joined(map(zlib.crc32, _pieces(value))) for value in values]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        checksums = [pool.map(zlib.crc32, _pieces(value)) for value in values]
        return [_joined(of_value) for of_value in checksums]


def _pieces(value: Any) -> list[Any]:
    array = np.ascontiguousarray(value)
    content: Any = array.reshape(-1).view("uint8")
    begins = range(0, len(content), _PIECE)
    return [content[begin : begin + _PIECE] for begin in begins]


def _joined(checksums: Iterable[int]) -> bytes:
    content = b"".join(each.to_bytes(4, "little") for each in checksums)
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _gathered(content: bytes, name: str, process_set: ProcessSet) -> Any:
    """Returns the bytes of all ranks, one row each."""
    return arrays.digest_rows(content, name, process_set)


def _grouped(digests: Any, members: list[int]) -> str:
    groups: dict[bytes, list[str]] = {}
    for rank, digest in zip(members, digests, strict=True):
        groups.setdefault(digest.tobytes(), []).append(str(rank))
    return " and ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} "
        f"ha{'ve' if len(ranks) > 1 else 's'} {which}"
        for ranks, which in zip(
            groups.values(),
            ["one value", *["another"] * len(groups)],
            strict=False,
        )
    )
