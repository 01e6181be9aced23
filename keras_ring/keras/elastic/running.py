"""Runs a training again when the ranks of its job have changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ring.core import generations, topology
from keras_ring.keras import scope
from keras_ring.keras.elastic import admission, positions
from keras_ring.keras.elastic.places import places
from keras_ring.keras.elastic.states import HostsUpdatedInterrupt, State


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that trains one that ranks may leave and join.

    The function is called with the state of the training, which all ranks have
    then, and goes on from there. When it calls `state.commit()` or
    `state.check_host_updates()`, and the job of `keras-ring run --elastic` has
    lost ranks or others wait, it is left by an exception, and called again:
    with others, if they wait, who get the state of rank 0.

    A process that joins a job which runs is alone until it calls the function:
    before that, `kr.rank()` is 0 and `kr.size()` is 1. A loop or a `fit` over
    `kr.data.batches` goes on with the epoch in which it was left. Before that,
    the functions of `state.register_reset_callbacks` are called on all ranks,
    those that have come in included, once these have the state.

    Unlike with Horovod, nothing is undone when a rank is lost, and no step is
    repeated: `state.restore()` is not called.

    Args:
        function: Function whose first argument is a `State`.

    Returns:
        A function with the same arguments, to be called once on each rank.

    Raises:
        TypeError: When it is called without a `State`.
        NotInitializedError: When it is called before `kr.init()`.

    Example:
    ```python
    @kr.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for batch in data:
                step(batch)
                state.commit()


    train(kr.elastic.KerasState(model, optimizer, epoch=0))
    ```
    """
    places.note_function()

    @functools.wraps(function)
    def elastic(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise TypeError(
                "The first argument must be a `kr.elastic.State`. Received: "
                f"{state!r} of type {type(state).__name__}"
            )
        topology.topology()
        comes_in = generations.is_waiting()
        if comes_in:
            admission.come_in(admission.all_variables())
        admission.share(state.sync, has_come_in=comes_in)
        if comes_in:
            # The others do so now.
            state.on_reset()
        goes_on = comes_in
        while True:
            state.agree_on_generation()
            try:
                with scope.inside(goes_on=goes_on):
                    return function(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            goes_on = True
            positions.pause()
            if not skip_sync:
                admission.let_in(admission.all_variables())
                admission.share(state.sync, has_come_in=False)
            state.on_reset()

    return elastic
