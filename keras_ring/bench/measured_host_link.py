"""Measures the link between the hosts of this job."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import keras_ring as kr
from keras_ring import errors
from keras_ring._launch_protocol import contract, interfaces
from keras_ring.bench import plain_tcp
from keras_ring.bench.host_link import HostLink

_T = TypeVar("_T")


def measure() -> HostLink:
    """Measures what plain TCP carries; each rank must call it.

    One rank of each host does it while the others wait. That it cannot is no
    error: the link is then one of which nothing is known but why.
    """
    local_ranks = kr.allgather_object(kr.local_rank(), name="bench/local")
    leaders = [rank for rank, local in enumerate(local_ranks) if local == 0]
    if len(leaders) == 1:
        return HostLink()
    token = kr.broadcast_object(secrets.token_bytes(32), name="bench/token")
    hosts = _Hosts(leaders)
    interface = os.environ.get(contract.INTERFACE, "")
    ports = interfaces.port_range(os.environ.get(contract.PORT_RANGE, ""))
    try:
        with contextlib.closing(plain_tcp.Neighbours(token)) as neighbours:
            endpoints = hosts.do(lambda: neighbours.listen(interface, ports))
            found = []
            for chunk in plain_tcp.CHUNKS:
                hosts.do(lambda: neighbours.connect(hosts.following(endpoints)))
                streams = hosts.do(partial(neighbours.stream, chunk))
                # What is slowest has to be waited for.
                rate = min(stream.gb_s for stream in streams)
                cpu = sum(stream.cpu_s_per_gb for stream in streams)
                found.append((rate, cpu))
            rate, cpu = max(found)
            return HostLink(len(leaders), rate, cpu_s_per_gb=cpu)
    except _LinkError as error:
        return HostLink(len(leaders), problem=str(error))


class _LinkError(Exception):
    """A step failed on a host, and so on all of them."""


class _Hosts:
    """The hosts of the job, each of them a rank.

    Args:
        leaders: These ranks.
    """

    def __init__(self, leaders: list[int]) -> None:
        self._leaders = leaders

    def do(self, step: Callable[[], _T]) -> list[_T]:
        """Takes a step on each host, and returns all results on all ranks.

        Nobody goes on before all are done.

        Raises:
            _LinkError: If it fails on any.
        """
        own: tuple[_T | None, str] = (None, "")
        if kr.rank() in self._leaders:
            try:
                own = (step(), "")
            except (OSError, errors.ConfigurationError) as error:
                own = (None, f"rank {kr.rank()}: {error}")
        ranks = kr.allgather_object(own, name="bench/link")
        for _, problem in ranks:
            if problem:
                raise _LinkError(problem)
        return [ranks[leader][0] for leader in self._leaders]

    def following(self, endpoints: list[_T]) -> _T:
        """Returns what belongs to the host after this one."""
        index = self._leaders.index(kr.rank())
        return endpoints[(index + 1) % len(endpoints)]
