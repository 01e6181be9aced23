"""The actors of a job: their placement, their start and their results."""

from __future__ import annotations

import importlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeAlias

from keras_ring import errors
from keras_ring.launch.ray import rank as rank_module
from keras_ring.launch.sharing import thread_variables
from keras_ring.launch.summary import RankEnd
from keras_ring.protocol import code_sources, contract, time_limits
from keras_ring.protocol.error_file import RankError

# An actor, a reference or a group of Ray. Ray has types for them, but may not
# be installed.
Handle: TypeAlias = Any

# Default seconds in which ranks may report that they have lost another rank. A
# variable of `keras-ring run` changes it.
_FAILURE_WAIT = 5.0


def failure_wait(environment: Mapping[str, str]) -> float | None:
    """Returns the time that the other ranks get after a rank has failed.

    Args:
        environment: The environment variables of the caller.

    Returns:
        Float, the time in seconds, or `None` for no limit.

    Raises:
        ConfigurationError: If `KERAS_RING_FAILURE_WAIT` is invalid.
    """
    text = environment.get(time_limits.FAILURE_WAIT)
    if not text:
        return _FAILURE_WAIT
    limit = time_limits.LIMITS[time_limits.FAILURE_WAIT]
    seconds = limit.parsed(text)
    if seconds is None:
        raise errors.ConfigurationError(
            f"{time_limits.FAILURE_WAIT} is {text!r}: expected {limit.expected}"
        )
    return None if math.isinf(seconds) else seconds


class Workers:
    """The actors of one job, which are ended on exit.

    Args:
        count: Integer, the number of ranks.
        resources: Dictionary of the resources that Ray reserves for each.
        strategy: String, the placement strategy of Ray.
        start_timeout: Float, the seconds for each part of the start.

    Raises:
        StartError: On entry, if Ray has no room for the actors in time.
    """

    def __init__(
        self,
        count: int,
        resources: dict[str, float],
        *,
        strategy: str,
        start_timeout: float,
    ) -> None:
        self._ray = importlib.import_module("ray")
        self._count = count
        self._resources = resources
        self._strategy = strategy
        self._start_timeout = start_timeout
        self._group: Handle = None
        self._actors: list[Handle] = []
        # The name of the host and the process id, by rank.
        self._processes: list[tuple[str, int]] = []

    def __enter__(self) -> Workers:
        try:
            self._reserve()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _reserve(self) -> None:
        groups = importlib.import_module("ray.util")
        self._group = groups.placement_group(
            [self._resources] * self._count, strategy=self._strategy
        )
        if self._group.wait(self._start_timeout):
            return
        raise errors.StartError(
            f"Ray has not found room for {self._count} workers of "
            f"{_shown(self._resources)} each ({self._strategy}) within "
            f"{self._start_timeout:g} s. The cluster has "
            f"{_shown(self._ray.cluster_resources())}, of which "
            f"{_shown(self._ray.available_resources())} are free."
        )

    def become_ranks(self, environment: Mapping[str, str]) -> None:
        """Starts the actors, and gives each the invitation of rank 0.

        Args:
            environment: Environment variables to set for the actors.

        Raises:
            StartError: If an actor does not start in time.
        """
        # Sort the bundles by their nodes, so that ranks of one node have
        # consecutive numbers.
        nodes = self._nodes()
        order = sorted(
            range(self._count), key=lambda i: (nodes.index(nodes[i]), i)
        )
        for rank, bundle in enumerate(order):
            self._actors.append(self._start(rank, bundle, environment))
        try:
            told = self._ask([a.where.remote() for a in self._actors])
            self._processes = [(host, pid) for host, pid, _ in told]
            addresses = {address for _, _, address in told}
            first = self._actors[0].invite.remote(len(addresses) == 1)
            (invitation,) = self._ask([first])
            self._ask([actor.join.remote(invitation) for actor in self._actors])
        except (
            self._ray.exceptions.RayError,
            self._ray.exceptions.GetTimeoutError,
        ) as error:
            raise errors.StartError(
                f"Ray has placed the {self._count} workers, and they do not "
                f"start: {error}"
            ) from error

    def _nodes(self) -> list[str]:
        """Returns the node of each bundle of the group."""
        groups = importlib.import_module("ray.util")
        table = groups.placement_group_table(self._group)
        by_bundle = table["bundles_to_node_id"]
        return [by_bundle[bundle] for bundle in range(self._count)]

    def _start(
        self, rank: int, bundle: int, environment: Mapping[str, str]
    ) -> Handle:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        others = dict(self._resources)
        num_cpus, num_gpus = others.pop("CPU", 0), others.pop("GPU", 0)
        # KERAS_RING_SIZE is set before keras_ring is imported, so that tensors
        # are in memory that the other ranks of the host can read.
        variables = {
            **thread_variables(max(1, int(num_cpus))),
            contract.START_TIMEOUT: f"{self._start_timeout:g}",
            contract.SIZE: str(self._count),
            contract.RANK: str(rank),
            # If a rank has started Ray, its variable must not be inherited.
            contract.PARENT_RANK: "",
            **environment,
        }
        actor = self._ray.remote(_actor_class())
        return actor.options(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            memory=others.pop("memory", None),
            resources=others,
            max_restarts=0,
            runtime_env={"env_vars": variables},
            scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                placement_group=self._group,
                placement_group_bundle_index=bundle,
            ),
        ).remote(self._count, rank)

    def _ask(self, references: list[Handle]) -> list[Any]:
        answers: list[Any] = self._ray.get(
            references, timeout=self._start_timeout
        )
        return answers

    def activate(self) -> list[RankEnd]:
        """Turns on `--auto` on all ranks.

        Call it before `call`, because unpickling the function may import Keras.

        Returns:
            List of `RankEnd`s, with the errors if there are any.
        """
        return self._results([a.activate.remote() for a in self._actors])[1]

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[list[Any], list[RankEnd]]:
        """Calls a function on all ranks.

        Returns:
            Tuple of the list of results and the list of `RankEnd`s, both by
            rank. After the first failure, the other ranks have a few seconds
            to report their own errors, and are then counted as stopped.
        """
        pickler = importlib.import_module("ray.cloudpickle").CloudPickler
        call = (function, args, dict(kwargs))
        # Pickle once for all ranks. Ray stores arrays in memory that all ranks
        # of a node can read.
        shared = self._ray.put(code_sources.dumps(call, pickler, apart=True))
        return self._results([a.call.remote(shared) for a in self._actors])

    def _results(
        self, references: list[Handle]
    ) -> tuple[list[Any], list[RankEnd]]:
        rank_of = {each: rank for rank, each in enumerate(references)}
        values: list[Any] = [None] * self._count
        ends: dict[int, RankEnd] = {}
        give_up: float | None = None
        patience = failure_wait(os.environ)
        waiting = list(rank_of)
        while waiting:
            left = None if give_up is None else give_up - time.monotonic()
            if left is not None and left <= 0:
                break
            done, waiting = self._ray.wait(waiting, timeout=left)
            for reference in done:
                rank = rank_of[reference]
                ends[rank], values[rank] = self._answer(rank, reference)
                failed = ends[rank].returncode != 0
                if failed and give_up is None and patience is not None:
                    give_up = time.monotonic() + patience
        for reference in waiting:
            rank = rank_of[reference]
            ends[rank] = self._end_of(rank, returncode=1, stopped=True)
        return values, [ends[rank] for rank in sorted(ends)]

    def _answer(self, rank: int, reference: Handle) -> tuple[RankEnd, Any]:
        try:
            kind, value = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            lost = f"with its Ray actor: {_reason(str(error))}"
            return self._end_of(rank, returncode=-1, lost=lost), None
        except self._ray.exceptions.RayError as error:
            # The result cannot be pickled, or the arguments cannot be
            # unpickled there.
            told = RankError.of(error, None)
            return self._end_of(rank, returncode=1, error=told), None
        if kind == rank_module.VALUE:
            return self._end_of(rank, returncode=0), value
        failed = RankError.from_record(value)
        return self._end_of(rank, returncode=1, error=failed), None

    def _end_of(self, rank: int, returncode: int, **more: Any) -> RankEnd:
        host, pid = self._processes[rank]
        return RankEnd(
            rank=rank,
            pid=pid,
            host=host,
            returncode=returncode,
            seen=time.time(),
            **more,
        )

    def _end(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._group is not None:
            groups = importlib.import_module("ray.util")
            groups.remove_placement_group(self._group)


def _actor_class() -> type:
    """Returns the class of the actors.

    The class is local, so that it is pickled by value: an actor must have its
    variables before it imports keras_ring.
    """

    class KerasRingRank:
        def __init__(self, size: int, rank: int) -> None:
            from keras_ring.launch.ray.rank import Rank

            self._rank = Rank(size, rank)

        def where(self) -> tuple[str, int, str]:
            import os
            import socket

            import ray

            address = ray.util.get_node_ip_address()
            return socket.gethostname(), os.getpid(), address

        def invite(self, one_host: bool) -> str:
            return self._rank.invite(one_host)

        def join(self, told: str) -> None:
            self._rank.join(told)

        def activate(self) -> Any:
            return self._rank.activate()

        def call(self, shared: Any) -> Any:
            return self._rank.call(shared)

    return KerasRingRank


def _reason(text: str) -> str:
    """Returns why an actor has died, without advice and identifiers."""
    words = " ".join(text.split())
    found = re.search(
        r"Worker exit detail: (.*?)(?: Some common causes|$)", words
    )
    return found[1] if found else words[:300]


def _shown(resources: Mapping[str, float]) -> str:
    """Returns a text for resources, without nodes and memory."""
    return ", ".join(
        f"{amount:g} {name}"
        for name, amount in sorted(resources.items())
        if not name.startswith(("node:", "memory", "object_store"))
    )
