"""Which tests a change can touch."""

import subprocess

import pytest

from tests.lint import floors
from tests.tiers import __main__ as command
from tests.tiers import reach
from tests.tiers.mutations import MUTATIONS, ROOT
from tests.tiers.reach import Reach

OWN, BELOW, APART = Reach.OWN, Reach.BELOW, Reach.APART


@pytest.mark.parametrize(
    ("path", "group", "expected"),
    [
        ("csrc/control/controller.cc", "multiprocess", OWN),
        ("csrc/control/controller.cc", "keras", BELOW),
        ("csrc/control/controller.cc", "launcher", BELOW),
        ("csrc/comm/net/socket.cc", "hosts", OWN),
        ("csrc/collective/mpi/mpi_backend.cc", "engines", OWN),
        ("csrc/collective/net/ring.cc", "engines", BELOW),
        ("csrc/control/controller.cc", "model", APART),
        ("tests/model/slots.py", "model", OWN),
        ("tests/model/slots.py", "keras", APART),
        ("keras_ring/keras/optimizer/optimizer.py", "keras", OWN),
        ("keras_ring/keras/optimizer/optimizer.py", "keras2", OWN),
        ("keras_ring/keras/optimizer/optimizer.py", "auto", BELOW),
        ("keras_ring/keras/optimizer/optimizer.py", "launcher", BELOW),
        ("keras_ring/unchanged/results.py", "auto", OWN),
        ("keras_ring/unchanged/results.py", "multiprocess", APART),
        ("keras_ring/observe/report/page.py", "launcher", OWN),
        ("keras_ring/observe/report/page.py", "keras", APART),
        ("keras_ring/bench/command.py", "benchmarks", OWN),
        ("keras_ring/bench/command.py", "hosts", APART),
        ("keras_ring/launch/job.py", "launcher", OWN),
        ("keras_ring/launch/job.py", "keras", BELOW),
        ("keras_ring/errors.py", "keras", BELOW),
        ("tests/harness/running.py", "keras", BELOW),
        ("tests/lab/lab.py", "hosts", OWN),
        ("docs/faults.md", "keras", APART),
        ("a/new/file", "keras", OWN),
        ("keras_ring/new_room/file.py", "hosts", OWN),
        ("pyproject.toml", "auto", OWN),
        ("docs/faults.md", "unit", OWN),
    ],
)
def test_of_groups(path, group, expected):
    assert reach.of_group(group, [path]) is expected


def test_the_closest_of_all_paths_counts():
    paths = [
        "docs/faults.md",
        "csrc/base/wire.h",
        "keras_ring/keras/data/shard.py",
    ]
    assert reach.of_group("keras", paths) is OWN
    assert reach.of_group("keras", paths[:2]) is BELOW
    assert reach.of_group("keras", []) is APART


def test_in_doubt_it_is_all():
    for group in reach.ROOMS:
        assert reach.of_group(group, None) is OWN
    assert reach.of_lane("cpp", None) is OWN
    assert reach.of_cpp_test("wire_test", None) is OWN


def test_every_folder_of_tests_is_a_group():
    folders = {path.parent.name for path in reach.TESTS.glob("*/test_*.py")}
    folders |= {
        path.relative_to(reach.TESTS).parts[0]
        for path in reach.TESTS.glob("*/*/test_*.py")
    }
    assert folders == {*reach.ROOMS, *reach.ALWAYS}


def test_of_every_file_it_is_known_what_it_is_part_of():
    """So that one of them does not make all lanes run."""
    listed = subprocess.run(
        ["git", "ls-files"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    unknown = {
        path
        for path in listed.stdout.splitlines()
        if reach._rooms(path) is None
    }
    # What they say concerns all lanes.
    assert unknown == {
        *("pyproject.toml", "requirements.txt", "keras_ring/keras/__init__.py"),
    }


@pytest.mark.parametrize(("lane", "path"), [("cpp", "csrc"), ("bazel", "docs")])
def test_a_command_tells_whether_a_lane_is_touched(monkeypatch, lane, path):
    paths = [f"{path}/file"]
    monkeypatch.setattr(command, "changed_paths", lambda: paths)
    monkeypatch.setattr("sys.argv", ["tiers", "--touches", lane])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == (path == "docs")


def test_every_room_is_tested():
    tested = {room for rooms in reach.ROOMS.values() for room in rooms}
    missing = {*floors.PYTHON_FLOORS} - tested
    assert not missing, f"no group of ROOMS in tests/tiers/reach.py: {missing}"
    for room in tested:
        assert (
            room in floors.PYTHON_FLOORS
            or (ROOT / room).exists()
            or list((ROOT / room).parent.glob((ROOT / room).name + "*"))
        ), room


def test_a_page_is_read_by_the_tests_that_name_it():
    page = ["docs/keras_guide.md"]
    assert reach.of_file("keras/test_guide.py", page) is OWN
    assert reach.of_file("keras/test_optimizer.py", page) is APART
    example = ["examples/tape_digits.py"]
    assert reach.of_file("keras/test_examples.py", example) is OWN


@pytest.mark.parametrize(
    ("lane", "path", "expected"),
    [
        ("cpp", "csrc/base/wire.h", OWN),
        ("cpp", "keras_ring/job.py", APART),
        ("cpp", "tools/cmake/anything.cmake", OWN),
        ("sanitized", "tests/fuzz/wire_fuzz.cc", OWN),
        ("sanitized", "docs/fuzzing.md", APART),
        ("package", "setup.py", OWN),
        ("package", "keras_ring/keras/optimizer/optimizer.py", APART),
        ("bazel", "BUILD", OWN),
        ("cpp", "requirements.txt", OWN),
    ],
)
def test_of_lanes(lane, path, expected):
    assert reach.of_lane(lane, [path]) is expected


def test_of_cpp_tests():
    paths = ["csrc/control/request.cc"]
    assert reach.of_cpp_test("request_test", paths) is OWN
    assert reach.of_cpp_test("controller_test_2_of_4", paths) is OWN
    assert reach.of_cpp_test("socket_test", paths) is BELOW
    assert reach.of_cpp_test("a_new_test", paths) is OWN
    assert reach.of_cpp_test("request_test", ["docs/a.md"]) is APART


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.what)
def test_what_finds_a_fault_runs_when_its_file_changes(mutation):
    paths = [mutation.file]
    for test in mutation.tests:
        name = test.partition("::")[0]
        if name.startswith("tests/"):
            found = reach.of_file(name.removeprefix("tests/"), paths)
        else:
            assert reach.of_lane("cpp", paths) is OWN
            found = reach.of_cpp_test(name, paths)
        if found is OWN:
            break
    else:
        pytest.fail(f"{mutation.tests} may be left out")
