"""Engines that have a variable for each number, in one table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from keras_ring.core.engines.process_identity import (
    Engine,
    ProcessIdentity,
    number,
)


@dataclass(frozen=True, kw_only=True)
class VariableEngine(Engine):
    """An engine that has a variable for each number.

    If a number has several names, the first one that is set counts.

    Args:
        name: Name of the engine for users.
        size: Variables for the number of processes.
        rank: Variables for the index of this process.
        address: Variable for the host of process 0. If there is no `port`,
            the value has a port, too, and may list several processes.
        port: Variable for the port on that host.
        port_taken: Variable that is `"True"` if the engine itself listens on
            that port. The job then uses the next port.
        advice: String, how the user can supply what the engine does not tell.
    """

    name: str
    size: tuple[str, ...]
    rank: tuple[str, ...]
    address: str = ""
    port: str = ""
    port_taken: str = ""
    advice: str = ""

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity, or `None` if no variable gives a size."""
        size = _first(self.size, environment)
        if size is None:
            return None
        rank = _first(self.rank, environment)
        names = [size] if rank is None else [size, rank]
        return ProcessIdentity(
            engine=self.name,
            size=int(environment[size]),
            rank=None if rank is None else int(environment[rank]),
            variables={name: environment[name] for name in names},
            address=self._address(environment),
            advice=self.advice,
        )

    def _address(self, environment: Mapping[str, str]) -> str | None:
        host = environment.get(self.address, "")
        if not self.port:
            first = host.partition(",")[0].strip()
            return first if re.search(r":[0-9]+$", first) else None
        port = number(environment, self.port)
        if not host or port is None:
            return None
        if environment.get(self.port_taken) == "True":
            port += 1
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _first(
    names: tuple[str, ...], environment: Mapping[str, str]
) -> str | None:
    """Returns the first of these variables that holds a number."""
    found = (name for name in names if number(environment, name) is not None)
    return next(found, None)


HOROVODRUN = VariableEngine(
    name="horovodrun",
    size=("HOROVOD_SIZE",),
    rank=("HOROVOD_RANK",),
    advice="keras-ring run takes the same -np, -H and --hostfile.",
)
# https://docs.pytorch.org/docs/stable/elastic/run.html
TORCHRUN = VariableEngine(
    name="torchrun, or a like of it",
    size=("WORLD_SIZE",),
    rank=("RANK",),
    address="MASTER_ADDR",
    port="MASTER_PORT",
    port_taken="TORCHELASTIC_USE_AGENT_STORE",
)
# https://keras.io/api/distribution (`keras.distribution.initialize`)
KERAS = VariableEngine(
    name="a launcher of Keras",
    size=("KERAS_DISTRIBUTION_NUM_PROCESSES",),
    rank=("KERAS_DISTRIBUTION_PROCESS_ID",),
    address="KERAS_DISTRIBUTION_JOB_ADDRESSES",
)
