"""The rules on BUILD and the CMake files, as functions over text.

Both builds take all sources of a floor's folder, so there are no lists to
compare: only what is said twice (flags), what a library uses beside its floor,
and what neither would find.
"""

import ast
import re

from tests.lint import floors

# Libraries with flags of their own that are parts of a room.
PARTS = ["kernels", "kernels_baseline", "kernels_avx2", "kernels_avx512"]


def _library(folder: str) -> str:
    """Returns the name of the library that a room of csrc is."""
    return folder.removeprefix("csrc/").replace("/", "_")


# Library -> those that it may use, from the same table as the rule on
# includes.
FLOORS = {
    _library(folder): {_library(other) for other in allowed}
    for folder, allowed in floors.CPP_FLOORS.items()
}
# Library -> the folder of csrc that it is.
FOLDERS = {
    **{_library(folder): folder for folder in floors.CPP_FLOORS},
    "testing": "csrc/testing",
    "collective_conformance": "csrc/testing",
    **{part: "csrc/collective/kernels" for part in PARTS},
}
DEPS = {
    **{
        floor: {f":{other}" for other in used} for floor, used in FLOORS.items()
    },
    "testing": {*(f":{floor}" for floor in FLOORS), "//tools/bazel:gtest_main"},
    "collective_conformance": {":testing"},
    **{part: {":kernels"} for part in PARTS},
}
DEPS["kernels"] = {":base"}
DEPS["collective_kernels"] |= {f":{part}" for part in PARTS}

# Where the builds look for sources.
_PLACES = [
    re.compile(rf"({'|'.join(sorted(set(FOLDERS.values())))})/\w+\.(cc|h)"),
    re.compile(r"tests/cpp/\w+/\w+(_test\.cc|\.h)"),
    re.compile(r"tests/cpp/precompiled\.cc"),
]
# What makes threads, or runs what does.
_THREADS = re.compile(
    r"std::thread|std::async|pthread_create|RunRanks|Cluster|_conformance\.h"
)


def _rules(bazel: str) -> dict[str, dict[str, ast.expr]]:
    """Returns the arguments of each cc_library.

    Those that tools/bazel/floors.bzl declares use what its table says.
    """
    rules = {}
    for statement in ast.parse(bazel).body:
        call = getattr(statement, "value", None)
        if not isinstance(call, ast.Call):
            continue
        arguments = {word.arg: word.value for word in call.keywords}
        if call.func.id == "cc_library":
            rules[ast.literal_eval(arguments["name"])] = arguments
        elif call.func.id == "floor":
            folder = ast.literal_eval(call.args[0])
            rules[_library(folder)] = {
                **arguments,
                "deps": ast.BinOp(
                    _of_table(folder),
                    ast.Add(),
                    arguments.get("deps", ast.List([])),
                ),
            }
        elif call.func.id == "floors":
            apart = ast.literal_eval(arguments["apart"])
            for folder in floors.CPP_FLOORS.keys() - apart:
                rules[_library(folder)] = {"deps": _of_table(folder)}
    return rules


def _of_table(folder: str) -> ast.expr:
    labels = [f":{_library(used)}" for used in floors.CPP_FLOORS[folder]]
    return ast.parse(repr(labels), mode="eval").body


def _strings(node: ast.expr | None) -> list[str]:
    """Returns the strings of a value; of a select, all that it may be."""
    if node is None:
        return []
    if isinstance(node, ast.BinOp):
        return _strings(node.left) + _strings(node.right)
    if isinstance(node, ast.Call) and node.func.id == "libraries_of":
        assert node.args[0].id == "FLOORS"
        return [f":{floor}" for floor in FLOORS]
    if isinstance(node, ast.Call) and node.func.id == "select":
        choices = ast.literal_eval(node.args[0]).values()
        return [item for choice in choices for item in choice]
    return list(ast.literal_eval(node))


def wrong_deps(bazel: str) -> list[str]:
    """Returns the libraries whose deps are not those of the table."""
    rules = _rules(bazel)
    problems = [f"{name} is no floor" for name in rules.keys() - DEPS]
    for name, deps in DEPS.items():
        if name not in rules:
            problems.append(f"there is no library {name}")
            continue
        found = _strings(rules[name].get("deps"))
        if sorted(found) != sorted(deps):
            problems.append(
                f"{name} depends on {sorted(found)}, not on {sorted(deps)}"
            )
    return problems


def foreign_sources(bazel: str) -> list[str]:
    """Returns what a floor's library takes from another folder."""
    problems = []
    for name, rule in _rules(bazel).items():
        for argument in ("srcs", "hdrs"):
            words = re.findall(
                r"(csrc/[\w/]+)/", ast.unparse(rule.get(argument, ast.List([])))
            )
            problems += [
                f"{name} takes sources from {word}"
                for word in words
                if word != FOLDERS.get(name)
            ]
    return problems


def misplaced(files: list[str]) -> list[str]:
    """Returns the C++ files that neither build would find.

    These are in folders that are no floor of `tools/bazel/floors.bzl`, or no
    sources of tests.
    """
    return [
        name
        for name in files
        if not any(place.fullmatch(name) for place in _PLACES)
    ]


def flag_differences(bazel: str, cmake: str) -> list[str]:
    """Returns the flags of kernels in which BUILD and CMake differ."""
    of_bazel = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(bazel).body
        if isinstance(statement, ast.Assign)
        and statement.targets[0].id.endswith("_COPTS")
    }
    of_cmake = {
        name: words.split()
        for name, words in re.findall(
            r"\bset\((\w+_COPTS)\s([^)]*)\)", code(cmake)
        )
    }
    return [
        f"{name}: {of_bazel.get(name)} in BUILD, {of_cmake.get(name)} in CMake"
        for name in sorted(of_bazel.keys() | of_cmake)
        if of_bazel.get(name) != of_cmake.get(name)
    ]


def forgotten_ops(cmake: str, on_disk: list[str]) -> list[str]:
    """Returns the sources that tf_ops/CMakeLists.txt or the disk lacks."""
    sources = re.findall(r"[\w${}./]+\.cc\b", code(cmake))
    # Those of the module for Python lie beside its Python files.
    named = {source for source in sources if "keras_ring/" not in source}
    return sorted(named ^ set(on_disk))


def single_threaded_tests(cmake: str) -> list[str]:
    """Returns the tests that TSAN does not run, by name."""
    found = re.search(
        r"set\(SINGLE_THREADED_TESTS([^)]*)\)", code(cmake), re.DOTALL
    )
    assert found
    return found.group(1).split()


def has_threads(test: str) -> bool:
    """Returns whether the code of a C++ test makes threads."""
    return bool(_THREADS.search(re.sub(r"//[^\n]*", "", test)))


def code(cmake: str) -> str:
    """Returns a CMake file without its comments."""
    return re.sub(r"#[^\n]*", "", cmake)
