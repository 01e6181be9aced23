"""Which processors are near each other, on hosts that are made up."""

import pytest

from keras_ring.protocol import processors
from keras_ring.protocol.processors import Node


class Host:
    """What the kernel would tell of a host."""

    def __init__(self, system):
        self.system = system

    def node(self, number, cpus):
        folder = self.system / f"devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")

    def core(self, number, *cpus, socket=0):
        for cpu in cpus:
            folder = self.system / f"devices/system/cpu/cpu{cpu}/topology"
            folder.mkdir(parents=True)
            (folder / "physical_package_id").write_text(f"{socket}\n")
            (folder / "core_id").write_text(f"{number}\n")

    def interface(self, name, node):
        folder = self.system / "class/net" / name / "device"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def two_sockets(host):
    # Of four cores each, with two threads: 0 and 8 are one core.
    for socket in range(2):
        first = 4 * socket
        host.node(socket, f"{first}-{first + 3},{first + 8}-{first + 11}")
        for core in range(4):
            cpu = first + core
            host.core(core, cpu, cpu + 8, socket=socket)
    return host


def _divided(nodes, num_ranks):
    """The processors of each rank."""
    return [cpus for _, cpus in processors.divided(nodes, num_ranks)]


def test_threads_of_a_core_are_together(two_sockets):
    assert processors.nodes(range(16), two_sockets.system) == (
        Node(0, ((0, 8), (1, 9), (2, 10), (3, 11))),
        Node(1, ((4, 12), (5, 13), (6, 14), (7, 15))),
    )


def test_one_node_is_divided_in_order(host):
    host.node(0, "0-3")
    for cpu in range(4):
        host.core(cpu, cpu)
    nodes = processors.nodes(range(4), host.system)
    assert _divided(nodes, 1) == [(0, 1, 2, 3)]
    assert _divided(nodes, 3) == [(0, 1), (2,), (3,)]


def test_ranks_are_spread_over_the_nodes(two_sockets):
    nodes = processors.nodes(range(16), two_sockets.system)
    assert processors.divided(nodes, 4) == [
        ((0,), (0, 8, 1, 9)),
        ((0,), (2, 10, 3, 11)),
        ((1,), (4, 12, 5, 13)),
        ((1,), (6, 14, 7, 15)),
    ]
    # Each on one, though that is not even.
    assert _divided(nodes, 3) == [
        (0, 8, 1, 9),
        (2, 10, 3, 11),
        (4, 12, 5, 13, 6, 14, 7, 15),
    ]


def test_more_ranks_than_cores_have_threads_of_their_own(two_sockets):
    nodes = processors.nodes(range(16), two_sockets.system)
    shares = _divided(nodes, 16)
    assert sorted(shares) == [(cpu,) for cpu in range(16)]
    assert shares[:2] == [(0,), (8,)]
    assert [len(each) for each in _divided(nodes, 12)] == [
        *(2, 2, 1, 1, 1, 1),
        *(2, 2, 1, 1, 1, 1),
    ]


def test_fewer_ranks_than_nodes_have_whole_ones(two_sockets):
    nodes = processors.nodes(range(16), two_sockets.system)
    ((numbers, cpus),) = processors.divided(nodes, 1)
    assert numbers == (0, 1)
    assert sorted(cpus) == list(range(16))


def test_what_may_not_be_used_is_left_out(two_sockets):
    # A control group leaves one node, three cores of the other, and of one of
    # these a thread.
    allowed = [0, 1, 8, 2, 10, 4, 5, 6, 7, 12, 13, 14, 15]
    nodes = processors.nodes(allowed, two_sockets.system)
    assert nodes[0].cores == ((0, 8), (1,), (2, 10))
    assert _divided(nodes, 7) == [
        (0, 8), (1,), (2, 10), (4, 12), (5, 13), (6, 14), (7, 15),
    ]  # fmt: skip
    # What is left of a node may be too little for a rank.
    nodes = processors.nodes([0, *range(4, 8)], two_sockets.system)
    assert _divided(nodes, 2) == [(4, 5), (6, 7)]


def test_nodes_without_processors_and_without_memory(host):
    # Nodes 1 and 3 are memory alone. Of one without, the kernel tells as much.
    for number, cpus in enumerate(("0-1", "", "2-3", "")):
        host.node(number, cpus)
    nodes = processors.nodes(range(4), host.system)
    assert [node.number for node in nodes] == [0, 2]
    assert processors.divided(nodes, 2) == [((0,), (0, 1)), ((2,), (2, 3))]


def test_no_two_ranks_share_a_processor(two_sockets):
    for allowed in (range(16), range(5), [3, 11, 4, 6, 14], [7]):
        nodes = processors.nodes(allowed, two_sockets.system)
        for num_ranks in range(1, len(allowed) + 1):
            shares = _divided(nodes, num_ranks)
            assert len(shares) == num_ranks
            assert all(shares)
            used = [cpu for share in shares for cpu in share]
            assert len(used) == len(set(used))
            assert set(used) <= set(allowed)


def test_where_the_kernel_tells_nothing(tmp_path):
    nodes = processors.nodes([3, 1], tmp_path)
    assert nodes == (Node(0, ((1,), (3,))),)
    assert sum(len(node.cpus) for node in processors.here()) >= 1


def test_an_interface_may_be_near_a_node(host):
    host.interface("eth0", 1)
    host.interface("lo0", -1)
    assert processors.node_of_interface("eth0", host.system) == 1
    assert processors.node_of_interface("lo0", host.system) is None
    assert processors.node_of_interface("wlan0", host.system) is None


def test_lists_are_written_as_the_kernel_does():
    assert processors.list_text([3, 0, 1, 2, 8]) == "0-3,8"
    assert processors.list_text([]) == ""
