"""The address of rank 0 and the key of the job, for the other ranks."""

import contextlib
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from keras_ring import errors
from keras_ring.core.engines import job_key
from keras_ring.protocol import contract, interfaces

# Number of ranks that may connect at once; the kernel may allow fewer.
_BACKLOG = 4096


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The address and the key that rank 0 sends to the other ranks.

    Args:
        addresses: Addresses of its host, the best one first.
        port: Integer, the port on which rank 0 listens.
        key: String of 64 hexadecimal characters, the secret of the job.
    """

    addresses: tuple[str, ...]
    port: int
    key: str

    def __repr__(self) -> str:
        """Returns a description without the key, which no log may hold."""
        return f"Invitation({self.rendezvous})"

    @property
    def rendezvous(self) -> str:
        """Value of `KERAS_RING_RENDEZVOUS`."""
        hosts = (f"[{a}]" if ":" in a else a for a in self.addresses)
        return f"{','.join(hosts)}:{self.port}"

    def encode(self) -> str:
        """Returns the invitation as text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Invitation":
        """Returns the invitation that `encode` has turned into `text`.

        Raises:
            ValueError: If `encode` did not make the text.
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
    """The rendezvous of the ranks, as one of them sees it.

    Args:
        size: Integer, the number of ranks.
        rank: Integer, the index of this rank.
        invitation: The invitation of rank 0.
        listener: Socket on which rank 0 listens; `None` on other ranks.
        mpi: Value of `KERAS_RING_MPI` if the ranks send through MPI, or `""`.
    """

    size: int
    rank: int
    invitation: Invitation
    listener: socket.socket | None = None
    mpi: str = ""

    def settings(self) -> dict[str, str]:
        """Returns the values of the `KERAS_RING_*` variables."""
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
    """Listens for the other ranks. Only rank 0 calls this.

    Args:
        environment: Environment of this process: the interface, the ports and
            the key, if the user has set them.
        one_host: Boolean, whether all ranks are on this host. If so, no other
            host can connect.

    Raises:
        StartError: If this host has no address for the others, or no port.
        ConfigurationError: If `KERAS_RING_INTERFACE` or
            `KERAS_RING_PORT_RANGE` do not fit this host.
    """
    addresses = ("127.0.0.1",) if one_host else _addresses(environment)
    try:
        listener = interfaces.listen(
            # Each of the other ranks uses the address that it can reach.
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
    """Returns the addresses of this host that the user has chosen.

    An address or a host name is returned unchanged: with network address
    translation, no interface has that address.

    Args:
        wanted: Value of `KERAS_RING_INTERFACE`; `""` for all addresses.

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
