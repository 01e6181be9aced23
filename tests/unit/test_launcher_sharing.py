import os

import pytest

from keras_ring.launch.sharing import Machine, share_cores
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import cores
from keras_ring.protocol.processors import Node

INTRA, INTER, OPENMP = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
)
EIGHT = Machine(8, (Node(0, tuple((cpu,) for cpu in range(8))),))


def _threads(share):
    return tuple(share.variables.get(name) for name in (INTRA, INTER, OPENMP))


@pytest.mark.parametrize(
    ("num_ranks", "threads", "expected"),
    [
        (2, None, ("4", "4", "4")),
        (3, None, ("2", "2", "2")),
        (8, None, ("1", "2", "1")),
        (64, None, ("1", "2", "1")),
        (1, None, (None, None, None)),
        (2, 0, (None, None, None)),
        (2, 3, ("3", "3", "3")),
        (1, 1, ("1", "2", "1")),
    ],
)
def test_cores_are_divided(num_ranks, threads, expected):
    share = share_cores(num_ranks, EIGHT, {}, threads=threads)
    assert _threads(share) == expected
    # The user is told of what he has not asked for.
    assert len(share.notes) == (threads is None and num_ranks > 1)


@pytest.mark.parametrize(
    ("num_ranks", "text"),
    [
        (2, "8 cores for 2 ranks: each computes with 4 threads"),
        (8, "8 cores for 8 ranks: each computes with 1 thread"),
    ],
)
def test_the_user_is_told_of_the_threads(num_ranks, text):
    share = share_cores(num_ranks, EIGHT, {})
    assert share.notes == (f"{text} (--threads changes it)",)


def test_what_the_user_has_set_stays():
    mine = {INTRA: "7", OPENMP: "5"}
    share = share_cores(2, EIGHT, mine)
    assert share.variables == {INTER: "4"}
    assert share.notes == (
        "8 cores for 2 ranks: set TF_NUM_INTEROP_THREADS=4"
        " (--threads changes it)",
    )
    assert share_cores(2, EIGHT, {**mine, INTER: "1"}).notes == ()


def test_ranks_are_bound_to_processors_of_their_own():
    share = share_cores(3, EIGHT, {}, bind=True)
    assert share.cpus == ((0, 1, 2), (3, 4, 5), (6, 7))
    assert share.notes[-1] == (
        "--bind: local ranks 0-2 on processors: 0-2; 3-5; 6-7"
    )
    with pytest.raises(UsageError, match="9 ranks cannot have"):
        share_cores(9, EIGHT, {}, bind=True)


def test_of_a_host_of_several_nodes_the_note_names_them():
    pair = (
        Node(0, tuple((cpu, cpu + 20) for cpu in range(10))),
        Node(1, tuple((cpu, cpu + 20) for cpu in range(10, 20))),
    )
    share = share_cores(2, Machine(40, pair), {}, threads=0, bind=True)
    assert share.notes == (
        "--bind: local rank 0 on processors of node 0: 0-9,20-29, local rank 1"
        " on processors of node 1: 10-19,30-39",
    )
    share = share_cores(1, Machine(40, pair), {}, bind=True)
    assert share.notes == (
        "--bind: local rank 0 on processors of nodes 0-1: 0-39",
    )
    (note,) = share_cores(20, Machine(40, pair), {}, threads=0, bind=True).notes
    assert "local ranks 0-9 on processors of node 0: 0,20; 1,21; 2,22;" in note
    assert note.endswith("17,37; ...")


@pytest.mark.parametrize("threads", [-1, 5000])
def test_numbers_of_threads_that_make_no_sense(threads):
    with pytest.raises(UsageError, match="--threads"):
        share_cores(2, EIGHT, {}, threads=threads)


def _group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_quota_of_version_2_also_of_a_group_around(tmp_path):
    of_process = tmp_path / "cgroup"
    of_process.write_text("0::/pod/job\n")
    mount = tmp_path / "fs"
    assert cores.quota(mount, of_process) is None
    _group(mount / "pod" / "job", cpu__max="max 100000\n")
    assert cores.quota(mount, of_process) is None
    _group(mount / "pod", cpu__max="250000 100000\n")
    assert cores.quota(mount, of_process) == 2.5
    _group(mount / "pod" / "job", cpu__max="150000 100000\n")
    assert cores.quota(mount, of_process) == 1.5


def test_a_quota_of_version_1(tmp_path):
    of_process = tmp_path / "cgroup"
    of_process.write_text("5:memory:/x\n4:cpu,cpuacct:/docker/1\n")
    mount = tmp_path / "fs"
    # In a container the group is the root, whatever the path says.
    root = mount / "cpu,cpuacct"
    _group(root, cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cores.quota(mount, of_process) is None
    _group(root, cpu__cfs_quota_us="300000\n")
    assert cores.quota(mount, of_process) == 3.0


def test_where_the_kernel_tells_nothing(tmp_path):
    assert cores.quota(tmp_path, tmp_path / "missing") is None
    assert cores.available() >= 1


def test_a_quota_counts_where_it_is_less_than_the_processors(monkeypatch):
    allowed = len(os.sched_getaffinity(0))
    for quota, expected in ((None, allowed), (1e6, allowed), (0.2, 1)):
        monkeypatch.setattr(cores, "quota", lambda quota=quota: quota)
        assert cores.available() == expected
    if allowed > 1:
        monkeypatch.setattr(cores, "quota", lambda: allowed - 1.5)
        assert cores.available() == allowed - 1
