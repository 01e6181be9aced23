"""`keras_ring.ray.run`: runs a function on several ranks of a Ray cluster."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_ring import errors
from keras_ring.launch.ray.workers import Workers
from keras_ring.launch.summary import failure_lines, first_failure
from keras_ring.protocol import auto_options, contract


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    num_workers: int = 2,
    resources_per_worker: Mapping[str, float] | None = None,
    strategy: str = "PACK",
    auto: bool = False,
    env: Mapping[str, str] | None = None,
    start_timeout: float = 60.0,
) -> list[Any]:
    """Runs a function on several ranks, each an actor of Ray.

    It works like `keras_ring.run`, but on a cluster that Ray manages. Ray
    places the ranks in one placement group, all of them or none, and transfers
    the function to them and the results back. The function must call
    `kr.init()` as a program does, unless `auto` does that. If a rank fails, the
    other ranks are ended. Ray shows the output of the ranks.

    Ranks of one node have consecutive numbers.

    Args:
        fn: Function that each rank calls. It must be possible to pickle it,
            its arguments and its results with `cloudpickle`.
        args: Sequence, the positional arguments of `fn`, the same on every
            rank.
        kwargs: Dictionary, the keyword arguments of `fn`. Defaults to none.
        num_workers: Integer, the number of ranks. Defaults to `2`.
        resources_per_worker: Dictionary of the resources that Ray reserves for
            each rank, such as `{"CPU": 4, "GPU": 1}`. TensorFlow gets as many
            threads as there are CPUs. Defaults to `{"CPU": 1}`.
        strategy: String, the placement strategy of Ray: `"PACK"`, `"SPREAD"`,
            `"STRICT_PACK"` or `"STRICT_SPREAD"`. Defaults to `"PACK"`.
        auto: Boolean, whether `fn` is written for a single process and trains
            on all ranks unchanged, as with `keras-ring run --auto`. Variables
            such as `KERAS_RING_AUTO_BATCH` in `env` set the options of that.
            Defaults to `False`.
        env: Dictionary of environment variables for the ranks.
        start_timeout: Float, the seconds in which Ray must have room for all
            ranks, and again in which the ranks must start and connect. Defaults
            to `60.0`.

    Returns:
        List of the function's results, by rank.

    Raises:
        ValueError: If an argument is invalid.
        ImportError: If Ray is not installed (`pip install "keras-ring[ray]"`).
        keras_ring.errors.StartError: If Ray has no room for the ranks in time,
            or they do not start in time. In the first case, the text has the
            requested and the available resources.
        keras_ring.errors.RankFailedError: If a rank failed. The text names the
            first rank that failed, and has its traceback.

    Example:
    ```python
    import keras_ring.launch.ray


    def train(steps):
        kr.init()
        ...
        return kr.rank(), float(loss)


    results = keras_ring.ray.run(train, (100,), num_workers=4)
    ```
    """
    if not callable(fn):
        raise ValueError(f"`fn` must be a function. Received: {fn!r}")
    if num_workers < 1:
        raise ValueError(
            f"`num_workers` must be at least 1. Received: {num_workers}"
        )
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(
            "keras_ring.ray needs Ray, which cannot be imported "
            f'({error}): pip install "keras-ring[ray]"'
        ) from error
    variables = {contract.AUTO: auto_options.ON} if auto else {}
    variables.update(env or {})
    if wrong := auto_options.problem(variables):
        raise ValueError(wrong)
    if not ray.is_initialized():
        ray.init()
    began = time.time()
    with Workers(
        num_workers,
        dict(resources_per_worker or {"CPU": 1}),
        strategy=strategy,
        start_timeout=start_timeout,
    ) as workers:
        workers.become_ranks(variables)
        results: list[Any] = []
        ends = workers.activate() if auto else []
        if first_failure(ends) is None:
            results, ends = workers.call(fn, tuple(args), dict(kwargs or {}))
    first = first_failure(ends)
    if first is None:
        return results
    lines = failure_lines(first, ends, None, time.time() - began)
    if first.error is not None and first.error.traceback:
        lines.append(f"traceback of rank {first.rank}:")
        lines.append(first.error.traceback.rstrip())
    raise errors.RankFailedError("\n".join(lines))
