"""The Bazel and the CMake build name the same files, and all that there are.

The rules are functions over text, and are shown to find what they are for.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.lint import floors

ROOT = Path(__file__).resolve().parents[2]
# Floor of csrc -> the floors that it may use, from the same table as the rule
# on includes.
FLOORS = {
    folder.removeprefix("csrc/"): {
        other.removeprefix("csrc/") for other in allowed - {folder}
    }
    for folder, allowed in floors.CPP_FLOORS.items()
}
DEPS = {
    **{
        floor: {f":{other}" for other in used} for floor, used in FLOORS.items()
    },
    "testing": {*(f":{floor}" for floor in FLOORS), "//tools/bazel:gtest_main"},
}
# Libraries with flags of their own that are parts of a floor.
PARTS = {
    "collective": [
        "kernels",
        "kernels_baseline",
        "kernels_avx2",
        "kernels_avx512",
    ]
}
DEPS["collective"] |= {f":{part}" for part in PARTS["collective"]}
DEPS |= {part: {":kernels"} for part in PARTS["collective"]}
DEPS["kernels"] = {":base"}


def bazel_rules(text: str) -> dict[str, dict[str, list[str]]]:
    """Returns the lists of strings of each cc_library, and of `tests`."""
    rules = {}
    for statement in ast.parse(text).body:
        call = getattr(statement, "value", None)
        if not isinstance(call, ast.Call):
            continue
        lists = {
            keyword.arg: _value(keyword.value) for keyword in call.keywords
        }
        kind = call.func.id
        if kind == "cc_library":
            rules[lists["name"]] = lists
        elif kind == "cpp_tests":
            assert "tests" not in rules
            rules["tests"] = lists
    return rules


def _value(node: ast.expr) -> object:
    """Returns a value of BUILD; of a select, all that it may be."""
    if isinstance(node, ast.BinOp):
        return _value(node.left) + _value(node.right)
    if isinstance(node, ast.Call) and node.func.id == "select":
        choices = ast.literal_eval(node.args[0]).values()
        return [item for choice in choices for item in choice]
    if isinstance(node, ast.Name):
        return [node.id]
    return ast.literal_eval(node)


def bazel_flags(text: str) -> dict[str, list[str]]:
    """Returns the lists of BUILD that have names."""
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
    }


def cmake_lists(text: str) -> dict[str, list[str]]:
    """Returns the lists that a CMake file sets."""
    found = re.findall(r"\bset\((\w+)([^)]*)\)", _cmake_code(text))
    return {name: words.split() for name, words in found}


def _cmake_code(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)


def _differences(what: str, left: list[str], right: list[str]) -> list[str]:
    """Returns what only one side has, or has more often."""
    left, right = Counter(left), Counter(right)
    extra = [f"{what}: only the first has {name}" for name in left - right]
    return extra + [
        f"{what}: only the second has {name}" for name in right - left
    ]


def disagreements(bazel: str, cmake: str) -> list[str]:
    """Returns in which sources BUILD, first, differs from sources.cmake."""
    rules, lists = bazel_rules(bazel), cmake_lists(cmake)
    sources = [
        *lists.pop("KERAS_RING_CSRC_SOURCES"),
        *lists.pop("KERAS_RING_X86_64_SOURCES", []),
        *lists.pop("KERAS_RING_OTHER_CPU_SOURCES", []),
        *lists.pop("KERAS_RING_TLS_SOURCES", []),
    ]
    problems = []
    for name, flags in bazel_flags(bazel).items():
        if name != "COPTS":
            problems += _differences(
                name, flags, lists.pop(f"KERAS_RING_{name}", [])
            )
    for floor in FLOORS:
        own = [name for name in sources if name.startswith(f"csrc/{floor}/")]
        named = [
            name
            for part in [floor, *PARTS.get(floor, [])]
            for name in rules[part]["srcs"]
        ]
        problems += _differences(floor, named, own)
        sources = [name for name in sources if name not in own]
    problems += [f"{name} is of no floor" for name in sources]
    problems += _differences(
        "testing",
        rules["testing"]["srcs"],
        lists.pop("KERAS_RING_TESTING_SOURCES"),
    )
    problems += _differences(
        "tests", rules["tests"]["srcs"], lists.pop("KERAS_RING_CPP_TESTS")
    )
    return problems + [f"{name} is not known here" for name in lists]


def forgotten(bazel: str, on_disk: list[str]) -> list[str]:
    """Returns what BUILD, first, and the disk do not have both."""
    named = []
    for rule in bazel_rules(bazel).values():
        named += rule["srcs"] + rule.get("hdrs", [])
    return _differences("files", named, on_disk)


def wrong_deps(bazel: str) -> list[str]:
    """Returns the libraries whose deps are not those of the table."""
    rules = bazel_rules(bazel)
    del rules["tests"]
    problems = [
        f"{name} depends on {sorted(rules[name].get('deps', []))}, "
        f"not on {sorted(deps)}"
        for name, deps in DEPS.items()
        if sorted(rules[name].get("deps", [])) != sorted(deps)
    ]
    return problems + [f"{name} is no floor" for name in rules.keys() - DEPS]


def forgotten_ops(cmake: str, on_disk: list[str]) -> list[str]:
    """Returns what package.cmake, first, and tf_ops do not have both.

    A file may be in more than one of the libraries.
    """
    named = re.findall(r"\btf_ops/\w+\.cc\b", _cmake_code(cmake))
    return _differences("tf_ops", sorted(set(named)), on_disk)


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


def test_bazel_and_cmake_name_the_same_sources():
    problems = disagreements(_read("BUILD"), _read("csrc/sources.cmake"))
    assert not problems, "\n".join(problems)


def test_no_file_is_forgotten():
    on_disk = _on_disk(
        "csrc/**/*.cc", "csrc/**/*.h", "tests/cpp/**/*.cc", "tests/cpp/**/*.h"
    )
    problems = forgotten(_read("BUILD"), on_disk)
    assert not problems, "\n".join(problems)


def test_deps_are_the_floors():
    problems = wrong_deps(_read("BUILD"))
    assert not problems, "\n".join(problems)


def test_no_op_is_forgotten():
    problems = forgotten_ops(
        _read("tf_ops/package.cmake"), _on_disk("tf_ops/*.cc")
    )
    assert not problems, "\n".join(problems)


# --- The rules find what they are for ---

# Of the files of each library.
STEMS = [
    f"csrc/collective/{name}"
    if name in PARTS["collective"]
    else f"csrc/{name}/a"
    for name in DEPS
]
BAZEL = (
    """
load("//tools/bazel:cpp_tests.bzl", "cpp_tests")
COPTS = ["-Wall"]
FAST_COPTS = ["-O3"]
"""
    + "\n".join(
        f"""
cc_library(
    name = "{name}",
    srcs = ["{stem}.cc"],
    hdrs = ["{stem}.h"],
    copts = COPTS,
    linkstatic = True,
    deps = {sorted(deps)},
)"""
        for (name, deps), stem in zip(DEPS.items(), STEMS, strict=True)
    )
    + """
cpp_tests(
    srcs = ["tests/cpp/base/a_test.cc"],
    copts = COPTS,
    deps = [":testing"],
)
"""
)
CMAKE = f"""
# A comment.
set(KERAS_RING_CSRC_SOURCES
  {" ".join(f"csrc/{floor}/a.cc" for floor in FLOORS)}
)
set(KERAS_RING_X86_64_SOURCES
  csrc/collective/kernels.cc
  csrc/collective/kernels_baseline.cc
  csrc/collective/kernels_avx2.cc
)
set(KERAS_RING_OTHER_CPU_SOURCES csrc/collective/kernels_avx512.cc)
set(KERAS_RING_FAST_COPTS -O3)
set(KERAS_RING_TESTING_SOURCES csrc/testing/a.cc)
set(KERAS_RING_CPP_TESTS
  tests/cpp/base/a_test.cc
)
"""
OPS = "add_library(x tf_ops/a_op.cc\n  tf_ops/b_op.cc)\n"


def test_right_files_pass():
    on_disk = [f"{stem}.{end}" for stem in STEMS for end in ("cc", "h")]
    assert not disagreements(BAZEL, CMAKE)
    assert not forgotten(BAZEL, [*on_disk, "tests/cpp/base/a_test.cc"])
    assert not wrong_deps(BAZEL)
    assert not forgotten_ops(OPS, ["tf_ops/a_op.cc", "tf_ops/b_op.cc"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("csrc/comm/a.cc", ""),
        ("csrc/comm/a.cc", "csrc/comm/b.cc"),
        ("csrc/comm/a.cc", "csrc/comm/a.cc csrc/comm/a.cc"),
        ("csrc/comm/a.cc", "csrc/comm/a.cc csrc/comm/b.cc"),
        ("csrc/comm/a.cc", "csrc/comm/a.cc csrc/elsewhere/a.cc"),
        ("csrc/comm/a.cc", "# csrc/comm/a.cc"),
        ("csrc/collective/kernels_avx2.cc", ""),
        ("-O3", "-O2"),
        ("-O3", "-O3 -mavx2"),
        ("csrc/testing/a.cc", ""),
        ("csrc/testing/a.cc", "csrc/testing/a.cc csrc/testing/b.cc"),
        ("tests/cpp/base/a_test.cc", ""),
        ("tests/cpp/base/a_test.cc", "tests/cpp/base/b_test.cc"),
        ("# A comment.", "set(MORE_SOURCES csrc/base/b.cc)"),
    ],
)
def test_disagreement_is_found(old, new):
    assert old in CMAKE
    assert disagreements(BAZEL, CMAKE.replace(old, new))


def test_source_under_another_floor_is_found():
    moved = BAZEL.replace("csrc/comm/a.cc", "csrc/base/a.cc", 1)
    assert disagreements(moved, CMAKE)


def test_select_counts_with_all_its_choices():
    chosen = 'select({":x": ["csrc/comm/a.cc"], ":y": []}) + []'
    assert '["csrc/comm/a.cc"]' in BAZEL
    bazel = BAZEL.replace('["csrc/comm/a.cc"]', chosen)
    assert not disagreements(bazel, CMAKE)
    assert disagreements(bazel.replace('":y": []', '":y": ["b.cc"]'), CMAKE)


@pytest.mark.parametrize(
    "name",
    [
        "csrc/control/a.cc",
        "csrc/control/a.h",
        "csrc/testing/a.h",
        "tests/cpp/base/a_test.cc",
    ],
)
def test_forgotten_file_is_found(name):
    on_disk = [f"{stem}.{end}" for stem in STEMS for end in ("cc", "h")]
    on_disk.append("tests/cpp/base/a_test.cc")
    assert forgotten(BAZEL, [*on_disk, name.replace("/a", "/new")])
    assert forgotten(BAZEL.replace(f'"{name}"', ""), on_disk)


@pytest.mark.parametrize(
    ("floor", "deps"),
    [
        ("base", [":comm"]),
        ("comm", []),
        ("collective", [":base", ":comm", ":control"]),
        ("control", [":base", ":collective", ":comm"]),
        ("runtime", [":base", ":collective", ":comm"]),
        ("runtime", [":base", ":collective", ":comm", ":control", ":testing"]),
        ("testing", [":base"]),
    ],
)
def test_wrong_deps_are_found(floor, deps):
    head, name, tail = BAZEL.partition(f'name = "{floor}"')
    right = f"deps = {sorted(DEPS[floor])}"
    assert right in tail
    assert wrong_deps(head + name + tail.replace(right, f"deps = {deps}", 1))


def test_library_that_is_no_floor_is_found():
    assert wrong_deps(BAZEL + 'cc_library(name = "util", srcs = [])\n')


@pytest.mark.parametrize(
    "on_disk",
    [
        ["tf_ops/a_op.cc"],
        ["tf_ops/a_op.cc", "tf_ops/b_op.cc", "tf_ops/c_op.cc"],
    ],
)
def test_forgotten_op_is_found(on_disk):
    assert forgotten_ops(OPS, on_disk)
