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
from keras_ring.bench import plain_tcp
from keras_ring.bench.host_link import HostLink
from keras_ring.protocol import contract, interfaces

_T = TypeVar("_T")


def measure() -> HostLink:
    """Measures the link by plain TCP; all ranks must call it.

    One rank of each host measures while the others wait. A failure raises no
    error: the link then has the reason in `problem`, and no rates.
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
                # A collective has to wait for the slowest host.
                rate = min(stream.gb_s for stream in streams)
                cpu = sum(stream.cpu_s_per_gb for stream in streams)
                found.append((rate, cpu))
            rate, cpu = max(found)
            return HostLink(len(leaders), rate, cpu_s_per_gb=cpu)
    except _LinkError as error:
        return HostLink(len(leaders), problem=str(error))


class _LinkError(Exception):
    """A step has failed on one host, which makes it an error on all."""


class _Hosts:
    """The hosts of the job, each represented by one of its ranks.

    Args:
        leaders: Integers, the ranks that represent the hosts.
    """

    def __init__(self, leaders: list[int]) -> None:
        self._leaders = leaders

    def do(self, step: Callable[[], _T]) -> list[_T]:
        """Runs a function on each host, and returns all results on all ranks.

        It returns when all hosts are done.

        Raises:
            _LinkError: If the function fails on a host.
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
        """Returns the endpoint of the host after this one."""
        index = self._leaders.index(kr.rank())
        return endpoints[(index + 1) % len(endpoints)]
