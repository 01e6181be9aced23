"""The hosts of a job: `-H`, host files, and which ranks each host takes."""

import codecs
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_ring.launch.usage import UsageError

# A name, an IPv4 address, or an IPv6 address in brackets, optionally with a
# user before it. None begins with a hyphen: ssh would take it for an option.
_NAME = (
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?"
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])"
)
_ENTRY = re.compile(rf"({_NAME})(?::([0-9]{{1,6}}))?")
# Open MPI's and Horovod's files: `node7 slots=4 max_slots=8`. The second form
# is that of Grid Engine: `node7 4 all.q@node7 UNDEFINED`.
_SLOTS = re.compile(
    r"(?:slots|cpus?|count)\s*=\s*([0-9]{1,6})|([0-9]{1,6})(?: \S+ \S+)?"
)
_IGNORED = re.compile(r"max[-_]slots\s*=\s*[0-9]{1,6}")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))


@dataclass(frozen=True)
class Host:
    """A host and the number of ranks that it takes."""

    name: str
    slots: int


@dataclass(frozen=True)
class HostRanks:
    """The ranks of a job that one host takes.

    Args:
        host: String, the name of the host as the user gave it.
        ranks: Range of consecutive ranks.
        local: Boolean, whether it is the host of the launcher.
        places: Integer, the most ranks that it takes at once, of a job that
            others join. Defaults to the number of `ranks`.
    """

    host: str
    ranks: range
    local: bool
    places: int = 0

    def __post_init__(self) -> None:
        """Counts its ranks."""
        if not self.places:
            object.__setattr__(self, "places", len(self.ranks))


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Returns the hosts of a list such as `"localhost:4,node7:2"`.

    Args:
        text: String, names separated by commas, each with `:slots`. A name
            without slots has one. The slots of a repeated name are added.

    Raises:
        UsageError: If an entry is malformed or offers no slot.
    """
    return _joined(_entry(entry.strip(), "-H") for entry in text.split(","))


def parse_discovered(text: str) -> tuple[Host, ...]:
    """Returns the hosts that a program has told, one on each line.

    Args:
        text: String, lines such as `"node7:2"`, as `horovodrun` takes them. A
            name without slots has one.

    Raises:
        UsageError: If a line is malformed.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return _joined(_entry(line, "its output") for line in lines if line)


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Returns the hosts of a file, as `mpirun` and `horovodrun` take it.

    Args:
        path: String, the path of a text file with a host on each line:
            `node7 slots=4` (Open MPI, Horovod), `node7:4` (MPICH), `node7 4`
            (Grid Engine), or `node7`, which takes one rank (Slurm, PBS). Of the
            last form, a line may have several entries, separated by commas.
            Words are separated by spaces or tabs. A `#` begins a comment. The
            encoding is UTF-8, or UTF-16 with a byte order mark, as Windows
            writes it.

    Raises:
        UsageError: If the file cannot be read, a line is malformed, or there
            is no host in it.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--hostfile {path}: {error}") from None
    encoding = "utf-16" if data.startswith(_UTF_16) else "utf-8-sig"
    hosts: list[Host] = []
    # Bytes that cannot be decoded may be in a comment. In a name of a host
    # they are an error below.
    for number, line in enumerate(
        data.decode(encoding, "replace").splitlines(), 1
    ):
        words = line.partition("#")[0].split()
        if words:
            hosts += _line(words, f"--hostfile {path}, line {number}")
    if not hosts:
        raise UsageError(f"--hostfile {path}: there is no host in it")
    return _joined(hosts)


def _line(words: Sequence[str], where: str) -> list[Host]:
    name = words[0]
    rest = _IGNORED.sub("", " ".join(words[1:])).strip()
    if not rest:
        names = name.rstrip(",").split(",")
        return [_entry(each, where) for each in names]
    match = _SLOTS.fullmatch(rest)
    if match is None or ":" in name.rpartition("]")[2]:
        raise UsageError(
            f"{where}: {' '.join(words)!r} is not of the form `host slots=4` or"
            " `host:4`"
        )
    return [_entry(f"{name}:{match[1] or match[2]}", where)]


def _entry(entry: str, where: str) -> Host:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise UsageError(
            f"{where}: {entry!r} is not of the form host:slots,"
            " for example localhost:4"
        )
    slots = int(match[2]) if match[2] is not None else 1
    if slots < 1:
        raise UsageError(f"{where}: {entry!r} offers no slot for a rank")
    return Host(match[1], slots)


def _joined(hosts: Iterable[Host]) -> tuple[Host, ...]:
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return tuple(Host(name, count) for name, count in slots.items())


def is_local(name: str, own_names: Collection[str]) -> bool:
    """Returns whether a name is one of this host.

    Args:
        name: String, the name as the user gave it. A name with `user@` never
            is one of this host.
        own_names: Names of this host, in addition to the loopback names.
    """
    return name in _LOCAL_NAMES or name in own_names


def assign_ranks(
    hosts: Sequence[Host],
    size: int,
    own_names: Collection[str],
    *,
    most: int | None = None,
) -> tuple[HostRanks, ...]:
    """Fills the hosts with ranks, one host after the other.

    Args:
        hosts: Sequence of `Host`s with enough slots together.
        size: Integer, the number of ranks.
        own_names: Names of this host, in addition to the loopback names.
        most: Integer, the most ranks of a job that others join, for which
            further hosts have places. `None` for other jobs.

    Returns:
        Tuple of `HostRanks`, for the hosts that take at least one rank, or
        have a place for one.

    Raises:
        UsageError: If more than one of these hosts is this host.
    """
    assigned = []
    first = 0
    for host in hosts:
        ranks = range(first, min(first + host.slots, size))
        places = len(ranks) if most is None else min(host.slots, most)
        if places:
            local = is_local(host.name, own_names)
            assigned.append(HostRanks(host.name, ranks, local, places))
        first = ranks.stop
    if len([each for each in assigned if each.local]) > 1:
        names = ", ".join(each.host for each in assigned if each.local)
        raise UsageError(f"{names} are one host: this one; give one of them")
    return tuple(assigned)
