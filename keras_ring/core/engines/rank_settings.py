"""Settings that make a process a rank of the job that an engine started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from keras_ring import errors
from keras_ring._typing import Communicator
from keras_ring.core.engines import invitations, job_key, known, mpi
from keras_ring.core.engines.process_identity import Engine, ProcessIdentity
from keras_ring.protocol import contract


@contextlib.contextmanager
def rank_settings(
    environment: Mapping[str, str], communicator: Communicator | None = None
) -> Iterator[dict[str, str]]:
    """Yields the settings of this rank, and keeps the meeting open meanwhile.

    If an engine does not tell all that a rank needs, that is an error: each
    process would train alone.

    Args:
        environment: Environment of this process.
        communicator: A communicator of mpi4py, whose processes are the ranks.
            Defaults to the processes that the engine has started.

    Yields:
        Values of `KERAS_RING_*` variables, which override the environment.

    Raises:
        StartError: If this is one of several processes, and something is
            missing.
        ConfigurationError: If the communicator contradicts the environment, or
            this host has no such interface.
    """
    with contextlib.ExitStack() as stack:
        if communicator is not None:
            settings = _of_communicator(communicator, environment, stack)
        elif environment.get(contract.SIZE):
            settings = _of_ours(environment)
        else:
            found = known.identity_among_several(environment)
            settings = _of_engine(*found, environment, stack) if found else {}
        wanted = environment.get(contract.INTERFACE)
        if wanted and _uses_network({**environment, **settings}):
            settings[contract.INTERFACE] = invitations.own_addresses(wanted)[0]
        yield settings


def _of_communicator(
    communicator: Communicator,
    environment: Mapping[str, str],
    stack: contextlib.ExitStack,
) -> dict[str, str]:
    if not mpi.is_usable(communicator):
        raise errors.ConfigurationError(
            "`comm` must be an intracommunicator of mpi4py, such as "
            f"MPI.COMM_WORLD, and not COMM_NULL. Received: {communicator!r}"
        )
    size = communicator.Get_size()
    told = environment.get(contract.SIZE, "")
    if told not in ("", str(size)):
        raise errors.ConfigurationError(
            f"`comm` has {size} processes, but {contract.SIZE} is {told}: "
            "keras-ring run has started this program, and not mpirun. Leave "
            "`comm` out."
        )
    if size == 1:
        return {contract.SIZE: "1", contract.RANK: "0"}
    met = stack.enter_context(mpi.meet(communicator, environment))
    return met.settings()


def _of_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings if `KERAS_RING_SIZE` is set."""
    settings = {}
    if not environment.get(contract.RANK):
        found = known.identity_among_several(environment)
        size = environment[contract.SIZE]
        if (
            found is not None
            and found[1].rank is not None
            and size != "1"
            and found[1].size in (None, _integer(size))
        ):
            settings[contract.RANK] = str(found[1].rank)
    if not environment.get(contract.JOB_KEY) and (
        key := job_key.given(environment)
    ):
        settings[contract.JOB_KEY] = key
    return settings


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _of_engine(
    engine: Engine,
    identity: ProcessIdentity,
    environment: Mapping[str, str],
    stack: contextlib.ExitStack,
) -> dict[str, str]:
    found = ", ".join(f"{k}={v}" for k, v in identity.variables.items())
    which = "one" if identity.rank is None else f"rank {identity.rank}"
    how_many = "several" if identity.size is None else str(identity.size)
    started = (
        f"This process is {which} of {how_many} that {identity.engine} has "
        f"started ({found})"
    )
    alone = f"Set {contract.SIZE}=1 if each process is to be a job of its own."
    address = environment.get(contract.RENDEZVOUS) or identity.address
    if (
        address is None
        and identity.size is not None
        and identity.rank is not None
    ):
        held = engine.meet(identity, environment)
        if held is not None:
            return stack.enter_context(held).settings()
    if identity.size is None or identity.rank is None or address is None:
        advice = identity.advice or (
            f"Start one process, `keras-ring run -np {how_many} -- python "
            f"...`, which starts the ranks; or set {contract.RENDEZVOUS} to an "
            "address and port of process 0, the same for all"
            f"{'' if identity.rank is not None else ', their rank'} and "
            f"{contract.JOB_KEY_FILE}."
        )
        raise errors.StartError(
            f"{started}, which does not say all that a rank must know: each of "
            f"them would train alone. {advice} {alone}"
        )
    key = job_key.given(environment)
    if not key:
        raise errors.StartError(
            f"{started}. To be the ranks of a job they need its key, the same "
            f"for all and known to nobody else: `(umask 077; openssl rand -hex "
            f"32 > key)`, and set {contract.JOB_KEY_FILE} to the path of that "
            f"file. {alone}"
        )
    return {
        contract.SIZE: str(identity.size),
        contract.RANK: str(identity.rank),
        contract.RENDEZVOUS: address,
        contract.JOB_KEY: key,
    }


def _uses_network(told: Mapping[str, str]) -> bool:
    """Returns whether ranks on other hosts may connect to this one."""
    if told.get(contract.SIZE, "1") == "1":
        return False
    host = told.get(contract.RENDEZVOUS, "").rpartition(":")[0]
    return host not in ("127.0.0.1", "localhost", "[::1]")
