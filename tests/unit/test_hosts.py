"""`-H`, host files, and which host takes which ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.errors import ConfigurationError
from keras_ring.launch.hosts import (
    Host,
    HostRanks,
    assign_ranks,
    parse_hosts,
    read_hostfile,
)
from keras_ring.launch.remote_shell import RemoteShell
from keras_ring.launch.usage import UsageError
from keras_ring.protocol.interfaces import Address, choose, listen

HOSTFILE = """
# Open MPI's and Horovod's
node1 slots=4
node2   slots = 2  max_slots=8   # a comment

# MPICH's
node3:3
user@node4
[fe80::1] slots=2
node3
"""


def _read(tmp_path, text):
    path = tmp_path / "hosts"
    path.write_text(text)
    return read_hostfile(str(path))


def test_hostfile(tmp_path):
    assert _read(tmp_path, HOSTFILE) == (
        Host("node1", 4),
        Host("node2", 2),
        Host("node3", 4),
        Host("user@node4", 1),
        Host("[fe80::1]", 2),
    )


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("node1\tslots=2\nnode2\tslots=1\n", "utf-8"),
        ("node1\t slots=2\t# first\n\n\t#c\n\tnode2:1\t\n", "utf-8"),
        ("node1 slots=2\r\nnode2\r\n", "utf-8-sig"),
        ("node1 slots=2\r\nnode2\r\n", "utf-16"),
        ("\ufeffnode1 slots=2\r\nnode2\r\n", "utf-16-be"),
        ("node1 slots=2  # Rechner im Büro\nnode2\n", "latin-1"),
        ("node1 max-slots=8 slots=2\nnode2 cpu=1\n", "utf-8"),
        ("node1\nnode1\nnode2\n", "utf-8"),
        ("node1,node1,node2\n", "utf-8"),
        ("node1,\nnode1:1,node2\n", "utf-8"),
        ("node1 2\nnode2 1\n", "utf-8"),
        (
            "node1 2 all.q@node1 UNDEFINED\nnode2 1 all.q@node2 <NULL>\n",
            "utf-8",
        ),
    ],
)
def test_hostfiles_as_sites_have_them(tmp_path, text, encoding):
    path = tmp_path / "hosts"
    path.write_bytes(text.encode(encoding))
    assert read_hostfile(str(path)) == (Host("node1", 2), Host("node2", 1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no host in it"),
        ("# nobody\n", "there is no host in it"),
        ("node1 cores=4\n", "line 1: 'node1 cores=4' is not of the form"),
        ("a\nnode1:2 slots=4\n", "line 2: 'node1:2 slots=4' is not"),
        ("node1 slots=0\n", "offers no slot"),
        ("node1 0\n", "offers no slot"),
        ("node1,,node2\n", "line 1: '' is not of the form"),
        ("node1,node2 slots=2\n", "line 1: 'node1,node2:2' is not of"),
        ("b\xfcro1\n", "is not of the form"),
        ("-oProxyCommand=x slots=1\n", "is not of the form"),
    ],
)
def test_malformed_hostfile(tmp_path, text, told):
    with pytest.raises(UsageError, match=told):
        _read(tmp_path, text)


def test_hostfile_that_is_not_there():
    with pytest.raises(UsageError, match=r"--hostfile none: .*No such file"):
        read_hostfile("none")


def test_no_host_is_an_option_of_ssh():
    for text in ("-v", "-oProxyCommand=x:2", "user@-v"):
        with pytest.raises(UsageError):
            parse_hosts(text)


def test_slots_of_a_host_add_up():
    assert parse_hosts("a:2,b,a:3") == (Host("a", 5), Host("b", 1))


_HOSTS = st.lists(st.integers(1, 9), min_size=1, max_size=9).map(
    lambda slots: tuple(Host(f"h{i}", each) for i, each in enumerate(slots))
)


@given(_HOSTS, st.data())
def test_every_rank_has_one_host(hosts, data):
    size = data.draw(st.integers(1, sum(host.slots for host in hosts)))
    slots = {host.name: host.slots for host in hosts}
    host_ranks = assign_ranks(hosts, size, own_names=())
    assert [rank for each in host_ranks for rank in each.ranks] == list(
        range(size)
    )
    assert all(0 < len(each.ranks) <= slots[each.host] for each in host_ranks)
    # Only the last host may have a slot left.
    assert all(len(each.ranks) == slots[each.host] for each in host_ranks[:-1])


def test_this_host_is_known_among_others():
    host_ranks = assign_ranks(parse_hosts("me:2,other"), 3, {"me"})
    assert host_ranks == (
        HostRanks("me", range(2), local=True),
        HostRanks("other", range(2, 3), local=False),
    )
    with pytest.raises(UsageError, match="me, localhost are one host"):
        assign_ranks(parse_hosts("me,other,localhost"), 3, {"me"})


def test_ssh_command():
    shell = RemoteShell(port=2222, identity="/k")
    words = shell.start_agent("user@[::1]")
    assert words[:3] == ["ssh", "-o", "BatchMode=yes"]
    assert words[5:-1] == ["-p", "2222", "-i", "/k", "user@::1"]
    assert words[-1].startswith("exec ")
    assert RemoteShell(command=("rsh", "-x")).try_by_hand("h") == (
        "rsh -x h true"
    )


ADDRESSES = [
    Address("eth0", "10.0.0.7"),
    Address("ib0", "192.168.3.7"),
    Address("ib0", "fd00::7"),
]


@pytest.mark.parametrize(
    ("wanted", "addresses"),
    [
        ("", ["10.0.0.7", "192.168.3.7", "fd00::7"]),
        ("ib0", ["192.168.3.7", "fd00::7"]),
        ("192.168.0.0/16", ["192.168.3.7"]),
        ("fd00::/8, eth0", ["fd00::7", "10.0.0.7"]),
        ("10.0.0.7", ["10.0.0.7"]),
        ("eth0,10.0.0.0/8", ["10.0.0.7"]),
    ],
)
def test_chosen_addresses(wanted, addresses):
    assert [each.address for each in choose(wanted, ADDRESSES)] == addresses


def test_no_such_address():
    with pytest.raises(
        ConfigurationError, match=r"--interface eth9: .*10.0.0.7"
    ):
        choose("eth9", ADDRESSES)


def test_first_free_port_of_a_range():
    with listen("127.0.0.1", None, 1) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError):
            listen("127.0.0.1", range(port, port + 1), 1)
        with listen("127.0.0.1", range(port, port + 20), 1) as other:
            assert port < other.getsockname()[1] < port + 20
