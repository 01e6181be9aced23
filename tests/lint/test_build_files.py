"""The Bazel and the CMake build agree, and find all sources.

The rules are shown to find what they are for.
"""

import re
from pathlib import Path

import pytest

from tests.lint import build_files

ROOT = Path(__file__).resolve().parents[2]


def _on_disk(*patterns: str) -> list[str]:
    files = [
        path.relative_to(ROOT).as_posix()
        for pattern in patterns
        for path in ROOT.glob(pattern)
    ]
    assert len(files) > 5
    return files


def _read(name: str) -> str:
    return (ROOT / name).read_text()


# --- The tree ---


def test_deps_are_the_floors():
    assert not build_files.wrong_deps(_read("BUILD"))


def test_no_floor_takes_sources_of_another():
    assert not build_files.foreign_sources(_read("BUILD"))


def test_no_file_is_where_no_build_looks():
    files = _on_disk(
        "csrc/**/*.cc", "csrc/**/*.h", "tests/cpp/**/*.cc", "tests/cpp/**/*.h"
    )
    lost = build_files.misplaced(files)
    assert not lost, f"in no folder of tools/bazel/floors.bzl: {lost}"


def test_tests_of_all_backends_are_listed():
    """They need what other tests are built without."""
    listed = re.search(
        r"^CONFORMANCE_TESTS = \[\n(.*?)^\]", _read("BUILD"), re.M | re.S
    )
    header = "csrc/testing/collective_conformance.h"
    using = [
        file
        for file in _on_disk("tests/cpp/*/*_test.cc")
        if f'"{header}"' in _read(file)
    ]
    assert sorted(re.findall(r'"(.*?)"', listed[1])) == sorted(using)


def test_flags_are_the_same():
    assert not build_files.flag_differences(
        _read("BUILD"), _read("csrc/CMakeLists.txt")
    )


def test_no_op_is_forgotten():
    names = [
        name.removeprefix("tf_ops/") if "tf_ops" in name else f"../{name}"
        for name in _on_disk("tf_ops/*.cc", "xla_ops/*.cc")
    ]
    assert not build_files.forgotten_ops(_read("tf_ops/CMakeLists.txt"), names)


def test_what_tsan_leaves_out_has_no_threads():
    tests = {
        Path(name).name.removesuffix("_test.cc"): _read(name)
        for name in _on_disk("tests/cpp/*/*_test.cc")
    }
    names = build_files.single_threaded_tests(_read("tests/cpp/CMakeLists.txt"))
    assert len(names) > 20
    assert [name for name in names if name not in tests] == []
    assert [
        name for name in names if build_files.has_threads(tests[name])
    ] == []


# --- The rules find what they are for ---


def _rule(name):
    folder = build_files.FOLDERS[name]
    return f"""
cc_library(
    name = "{name}",
    srcs = glob(["{folder}/*.cc"]),
    hdrs = ["{folder}/a.h"],
    copts = COPTS,
    deps = {sorted(build_files.DEPS[name])},
)"""


BAZEL = "\n".join(map(_rule, build_files.DEPS))
# The same by tools/bazel/floors.bzl.
PARTS = [f":{part}" for part in build_files.PARTS]
BY_TABLE = f"""
floors(apart = ["csrc/base", "csrc/collective/kernels"], copts = COPTS)
floor("csrc/base", srcs = glob(["csrc/base/*.cc"]), copts = COPTS)
floor("csrc/collective/kernels", copts = COPTS, deps = {PARTS})
""" + "\n".join(
    _rule(name) for name in build_files.DEPS if name not in build_files.FLOORS
)
FLAGS = 'COPTS = ["-Wall"]\nFAST_COPTS = ["-O3", "-mavx2"]\n'
CMAKE_FLAGS = "# A comment.\nset(FAST_COPTS -O3\n    -mavx2)\n"
OPS = "add_adapter(x a_op.cc\n  b_op.cc)\nadd(../keras_ring/core/core.cc)"


def test_right_files_pass():
    for bazel in (BAZEL, BY_TABLE):
        assert not build_files.wrong_deps(bazel)
        assert not build_files.foreign_sources(bazel)
    assert not build_files.forgotten_ops(OPS, ["a_op.cc", "b_op.cc"])


@pytest.mark.parametrize(
    ("floor", "deps"),
    [
        ("base", [":comm_net"]),
        ("comm_net", []),
        ("comm_host", [":base", ":comm_net", ":comm_transport"]),
        ("collective", [":base", ":collective_kernels", ":control"]),
        ("control", [":base", ":collective"]),
        ("runtime", [":base", ":collective", ":comm_net"]),
        ("runtime_diagnostics", [":base", ":control", ":testing"]),
        ("testing", [":base"]),
    ],
)
def test_wrong_deps_are_found(floor, deps):
    head, name, tail = BAZEL.partition(f'name = "{floor}"')
    right = f"deps = {sorted(build_files.DEPS[floor])}"
    assert right in tail
    wrong = head + name + tail.replace(right, f"deps = {deps}", 1)
    assert build_files.wrong_deps(wrong)


def test_deps_of_a_select_count():
    right = f"deps = {sorted(build_files.DEPS['comm_net'])}"
    wrong = right + ' + select({":x": [":control"], ":y": []})'
    assert right in BAZEL
    assert build_files.wrong_deps(BAZEL.replace(right, wrong, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('floor("csrc/base",', 'floor("csrc/base", deps = [":control"],'),
        (f"deps = {PARTS}", f"deps = {PARTS[1:]}"),
        ('apart = ["csrc/base"', 'apart = ["csrc/base", "csrc/control"'),
    ],
)
def test_wrong_floors_are_found(old, new):
    assert old in BY_TABLE
    assert build_files.wrong_deps(BY_TABLE.replace(old, new))


def test_library_that_is_no_floor_is_found():
    assert build_files.wrong_deps(BAZEL + '\ncc_library(name = "util")\n')


@pytest.mark.parametrize("what", ['srcs = glob(["', 'hdrs = ["'])
def test_sources_of_another_floor_are_found(what):
    old = f"{what}csrc/comm/net/"
    assert old in BAZEL
    wrong = BAZEL.replace(old, f"{what}csrc/control/")
    assert build_files.foreign_sources(wrong)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("csrc/comm/net/a.cc", False),
        ("csrc/collective/a.cc", False),
        ("csrc/testing/a.h", False),
        ("tests/cpp/comm/a_test.cc", False),
        ("tests/cpp/comm/peer.h", False),
        ("csrc/a.cc", True),
        ("csrc/util/a.cc", True),
        ("csrc/comm/a.cc", True),
        ("csrc/comm/net/new/a.cc", True),
        ("csrc/comm/net/a.cpp", True),
        ("tests/cpp/a_test.cc", True),
        ("tests/cpp/comm/test_a.cc", True),
    ],
)
def test_misplaced_file_is_found(name, lost):
    assert build_files.misplaced([name]) == ([name] if lost else [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-O3", "-O2"),
        ("-mavx2", "-mavx2 -mf16c"),
        ("-mavx2", ""),
        ("FAST_COPTS", "OTHER_COPTS"),
        ("set(", "# set("),
    ],
)
def test_other_flags_are_found(old, new):
    assert not build_files.flag_differences(FLAGS, CMAKE_FLAGS)
    assert old in CMAKE_FLAGS
    assert build_files.flag_differences(FLAGS, CMAKE_FLAGS.replace(old, new))


@pytest.mark.parametrize(
    "on_disk", [["a_op.cc"], ["a_op.cc", "b_op.cc", "c_op.cc"]]
)
def test_forgotten_op_is_found(on_disk):
    assert build_files.forgotten_ops(OPS, on_disk)


@pytest.mark.parametrize(
    ("test", "threads"),
    [
        ("std::thread worker(f);", True),
        ("RunRanks(2, [&](int rank) {});", True),
        ('#include "csrc/testing/collective_conformance.h"', True),
        ("ControllerCluster cluster(3);", True),
        ("// std::thread is not needed\nint a;", False),
    ],
)
def test_threads_are_found(test, threads):
    assert build_files.has_threads(test) == threads
