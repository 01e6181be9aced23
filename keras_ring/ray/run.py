"""`keras_ring.ray.run`: a function on several ranks, on a Ray cluster."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_ring import errors
from keras_ring._launch_protocol import auto_options, contract
from keras_ring.launcher.summary import failure_lines, first_failure
from keras_ring.ray.workers import Workers


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

    As `keras_ring.run` does on hosts, on a cluster that Ray manages: Ray
    places the ranks (in one placement group, all of them or none), carries
    the function there and the results back. The function calls `kr.init()` as
    a program does, unless `auto` does. If a rank fails, the others are ended.
    What ranks print comes out where Ray shows it.

    Ranks of one node have consecutive numbers.

    Args:
        fn: What each rank calls. It must be possible to pickle it by
            `cloudpickle`, with its arguments and results.
        args: Its positional arguments, the same on every rank.
        kwargs: Its keyword arguments. Defaults to none.
        num_workers: Integer, the number of ranks.
        resources_per_worker: What Ray reserves for each rank, such as
            `{"CPU": 4, "GPU": 1}`. TensorFlow gets as many threads as there
            are CPUs. Defaults to `{"CPU": 1}`.
        strategy: String, how Ray places them: `"PACK"`, `"SPREAD"`,
            `"STRICT_PACK"` or `"STRICT_SPREAD"`.
        auto: Boolean, whether the function is one for a single process, which
            trains on all ranks unchanged, as by `keras-ring run --auto`. The
            variables `KERAS_RING_AUTO_BATCH` and the like, in `env`, are the
            options of that.
        env: Variables to set for the ranks.
        start_timeout: Float, seconds in which Ray must have room for all
            ranks, and in which they must then come together.

    Returns:
        A list of what the function returned, by rank.

    Raises:
        ValueError: If an argument makes no sense.
        ImportError: If Ray is not installed (`pip install "keras-ring[ray]"`).
        keras_ring.errors.StartError: If Ray has no room for the ranks in time;
            the text says what was asked for and what is there.
        keras_ring.errors.RankFailedError: If a rank failed. The text says
            which one was first, and has its traceback.

    Example:
    ```python
    import keras_ring.ray


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
