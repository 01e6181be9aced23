"""Where rank 0 is, and the key of the job, for the others."""

import contextlib
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from keras_ring import errors
from keras_ring._engines import job_key
from keras_ring._launch_protocol import contract, interfaces

# Ranks that come at once; the kernel allows fewer where it is told to.
_BACKLOG = 4096


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What rank 0 tells the others.

    Args:
        addresses: Of its host, the best first.
        port: On which it listens there.
        key: 64 hexadecimal characters, the secret of the job.
    """

    addresses: tuple[str, ...]
    port: int
    key: str

    def __repr__(self) -> str:
        """Leaves the key out, so no log can hold it."""
        return f"Invitation({self.rendezvous})"

    @property
    def rendezvous(self) -> str:
        """Value of `KERAS_RING_RENDEZVOUS`."""
        hosts = (f"[{a}]" if ":" in a else a for a in self.addresses)
        return f"{','.join(hosts)}:{self.port}"

    def encode(self) -> str:
        """Returns it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Invitation":
        """Returns what `encode` was called on.

        Raises:
            ValueError: If the text is none of `encode`.
        """
        try:
            told = json.loads(text)
            return cls(
                addresses=tuple(map(str, told["addresses"])),
                port=int(told["port"]),
                key=str(told["key"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no invitation: {error!r}") from None


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """A place where ranks meet, as one of them sees it.

    Args:
        size: Number of ranks.
        rank: Index of this one.
        invitation: Of rank 0.
        listener: Socket of rank 0; None on the others.
        mpi: The MPI through which they are to send; empty for none.
    """

    size: int
    rank: int
    invitation: Invitation
    listener: socket.socket | None = None
    mpi: str = ""

    def settings(self) -> dict[str, str]:
        """Returns the values of our variables."""
        values = {
            contract.SIZE: str(self.size),
            contract.RANK: str(self.rank),
            contract.RENDEZVOUS: self.invitation.rendezvous,
            contract.JOB_KEY: self.invitation.key,
        }
        if self.listener is not None:
            values[contract.RENDEZVOUS_FD] = str(self.listener.fileno())
        if self.mpi:
            values[contract.MPI] = self.mpi
        return values


@contextlib.contextmanager
def invite(
    environment: Mapping[str, str], *, one_host: bool
) -> Iterator[tuple[Invitation, socket.socket]]:
    """Listens, as rank 0.

    Args:
        environment: Of this process: which interface and ports, and the key,
            if the user has set them.
        one_host: Boolean, whether all ranks are on this host; then only they
            can connect.

    Raises:
        StartError: If this host has no address for the others, or no port.
        ConfigurationError: If `KERAS_RING_INTERFACE` or
            `KERAS_RING_PORT_RANGE` do not fit this host.
    """
    addresses = ("127.0.0.1",) if one_host else _addresses(environment)
    try:
        listener = interfaces.listen(
            # Each of the others takes the one by which it comes.
            addresses[0] if len(addresses) == 1 else "",
            _ports(environment),
            _BACKLOG,
        )
    except OSError as error:
        raise errors.StartError(
            f"Rank 0 cannot listen on {', '.join(addresses)}: {error}"
        ) from None
    with listener:
        key = job_key.given(environment) or secrets.token_hex(32)
        port = listener.getsockname()[1]
        yield Invitation(addresses=addresses, port=port, key=key), listener


def _addresses(environment: Mapping[str, str]) -> tuple[str, ...]:
    addresses = own_addresses(environment.get(contract.INTERFACE, ""))
    if not addresses:
        raise errors.StartError(
            f"{socket.gethostname()}, the host of rank 0, has no address by "
            "which others reach it: no interface is up but loopback."
        )
    return addresses


def own_addresses(wanted: str) -> tuple[str, ...]:
    """Returns the addresses of this host that the user means.

    An address and the name of a host stay as they are: where addresses are
    translated, no interface has them.

    Args:
        wanted: Value of `KERAS_RING_INTERFACE`, `""` for all.

    Raises:
        ConfigurationError: If this host has no such interface.
    """
    own = interfaces.own_addresses()
    try:
        chosen = interfaces.choose(wanted, own, setting=contract.INTERFACE)
    except errors.ConfigurationError:
        if _is_address(wanted):
            return (wanted,)
        raise
    return tuple(dict.fromkeys(each.address for each in chosen))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        pass
    else:
        return True
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        return False
    return True


def _ports(environment: Mapping[str, str]) -> range | None:
    text = environment.get(contract.PORT_RANGE, "")
    if not text:
        return None
    ports = interfaces.port_range(text)
    if ports is None:
        raise errors.ConfigurationError(
            f"{contract.PORT_RANGE} is {text!r}: expected two ports, such as "
            "30000-30099"
        )
    return ports
