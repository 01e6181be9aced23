"""The attributes by which callbacks decide, and that they remember."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from keras_ring._typing import Callback
from keras_ring.keras.lanes import keras

SHARED_STATE = "shared_state"
"""The attribute by which a callback names others that all ranks share."""

_OF_KERAS = {
    "History": ("epoch", "history"),
    "EarlyStopping": (
        *("best", "best_epoch", "best_weights", "stopped_epoch", "wait"),
    ),
    "ReduceLROnPlateau": ("best", "cooldown_counter", "wait"),
    "ModelCheckpoint": (
        *("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    ),
}

_Key = tuple[str, int]
State = dict[_Key, dict[str, Any]]
"""The attributes of callbacks, by their class and their number in it."""


def settle(callbacks: Any) -> None:
    """Waits until callbacks have heard of all batches so far.

    Keras calls some of them in a thread of its own.

    Args:
        callbacks: The `CallbackList` of a `fit`.
    """
    flush = getattr(callbacks, "_flush_futures", None)
    if flush is not None:
        flush()


def state_of(callbacks: Iterable[Callback]) -> State:
    """Returns the attributes that callbacks remember.

    Args:
        callbacks: Those of a `fit`.
    """
    return {
        key: {
            name: getattr(callback, name)
            for name in _names(callback)
            if hasattr(callback, name)
        }
        for key, callback in _by_key(callbacks).items()
    }


def give(callbacks: Iterable[Callback], state: State) -> None:
    """Makes callbacks remember what others do.

    Args:
        callbacks: Those of a `fit`.
        state: Result of `state_of` for those of the same `fit` on another rank.
            What these do not have is left out.
    """
    for key, callback in _by_key(callbacks).items():
        for name, value in state.get(key, {}).items():
            setattr(callback, name, value)


def _by_key(callbacks: Iterable[Callback]) -> dict[_Key, Callback]:
    count: Counter[str] = Counter()
    result = {}
    for callback in callbacks:
        name = type(callback).__name__
        result[name, count[name]] = callback
        count[name] += 1
    return result


def _names(callback: Callback) -> tuple[str, ...]:
    names = tuple(getattr(callback, SHARED_STATE, ()))
    for owner, of_owner in _OF_KERAS.items():
        if isinstance(callback, getattr(keras.callbacks, owner, ())):
            names += of_owner
    return names
