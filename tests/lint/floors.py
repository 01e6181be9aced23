"""The rules on who may include or import whom, as functions over text.

Kept apart from the tests that apply them to the tree, so that other tests can
show that each rule does find what it forbids.
"""

import ast
import re
from collections.abc import Collection
from pathlib import Path

from tests.lint import rooms


def read_floors(bazel: str) -> dict[str, tuple[str, ...]]:
    """Returns the table of tools/bazel/floors.bzl.

    Args:
        bazel: The text of that file.
    """
    (table,) = (
        ast.literal_eval(statement.value)
        for statement in ast.parse(bazel).body
        if isinstance(statement, ast.Assign)
        and statement.targets[0].id == "FLOORS"
    )
    return {folder: tuple(used) for folder, used in table.items()}


_ROOT = Path(__file__).resolve().parents[2]
# Room of csrc -> the rooms that it may include, beside itself. The order is
# that of the floors: nothing includes what comes after it.
CPP_FLOORS = read_floors((_ROOT / "tools/bazel/floors.bzl").read_text())
# What adapters see of the core: its C interface, and a table that is nothing
# but a macro.
ADAPTERS = ("tf_ops", "xla_ops", "keras_ring/core")
_ADAPTER_HEADERS = {"csrc/capi/keras_ring.h", "csrc/base/dtype_table.h"}
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OF_TENSORFLOW = ("tensorflow/", "tsl/", "absl/", "tf_ops/")
_FORBIDDEN_HEADERS = ("tensorflow/", "xla/", "pybind11/", "Python.h", "tsl/")


def _code(text: str) -> str:
    return _COMMENT.sub("", text)


def includes(text: str) -> list[str]:
    """Returns what a C++ file includes."""
    return _INCLUDE.findall(_code(text))


def core_problems(folder: str, text: str) -> list[str]:
    """Returns what is wrong with a file of a floor of csrc."""
    problems = []
    for header in includes(text):
        if header.startswith(_FORBIDDEN_HEADERS):
            problems.append(f"csrc knows no {header}")
        elif header.startswith("openssl/") and folder != "csrc/tls":
            problems.append(f"only csrc/tls knows {header}")
        elif header.startswith(("csrc/", "tf_ops/", "xla_ops/", "keras_ring/")):
            place = header.rpartition("/")[0]
            if place not in (folder, *CPP_FLOORS[folder]):
                problems.append(
                    f"{folder} must not include {header}: "
                    "tools/bazel/floors.bzl has what may"
                )
    return problems


def adapter_problems(folder: str, text: str) -> list[str]:
    """Returns what is wrong with a file that adapts the core to others."""
    return [
        f"{folder} must not include {header}"
        for header in includes(text)
        if (header.startswith("csrc/") and header not in _ADAPTER_HEADERS)
        # For JAX as well, which has no part of TensorFlow.
        or (folder == "xla_ops" and header.startswith(_OF_TENSORFLOW))
    ]


def c_header_problems(text: str) -> list[str]:
    """Returns what is wrong with the header of the C interface."""
    return [
        f"the C interface must not include {header}"
        for header in includes(text)
        if not header.startswith("std") or not header.endswith(".h")
    ]


def banned_calls(text: str, *, may_read_environment: bool) -> list[str]:
    """Returns the banned words of a C++ file."""
    code = _code(text)
    problems = []
    if not may_read_environment and re.search(r"\bgetenv\b", code):
        problems.append("getenv (only csrc/base/options.cc reads variables)")
    if re.search(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b", code):
        problems.append("a sleep (wait for a condition, with a deadline)")
    if re.search(r"^\s*#\s*(if|ifdef|elif)\b.*\bHAVE_", code, re.MULTILINE):
        problems.append("#if HAVE_ (the build chooses files instead)")
    return problems


def imported_modules(text: str) -> set[str]:
    """Returns every module that a Python file imports, at any depth.

    `import_module` of a constant counts. `keras_ring` itself is there if it is
    imported whole.
    """
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.add("relative import")
            module = node.module or ""
            if module != "keras_ring":
                found |= {module}
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            argument = node.args[0]
            if name == "import_module" and isinstance(argument, ast.Constant):
                found.add(str(argument.value))
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


_QUOTED = re.compile(r"`[^`\n]+`")
_PRIVATE = re.compile(r"`(_[a-z][a-z_0-9]*)[`.(]")
# Not names of ours: how those of Prometheus end.
_ENDINGS = ("_total",)


def quoted_problems(text: str, modules: Collection[str]) -> list[str]:
    """Returns the private names that a text quotes, and that are not there.

    Args:
        text: Of a Python file.
        modules: Names of all modules and rooms of keras_ring.
    """
    words = set(re.findall(r"\w+", _QUOTED.sub("", text)))
    known = {*words, *modules, *_ENDINGS}
    return [
        f"there is no {name}"
        for name in _PRIVATE.findall(text)
        if name not in known
    ]


_CONTEXT = re.compile(r"\bContextVar\(")
_WITH_CONTEXT = ("keras/scope.py", "tensorflow/xla.py")
_PICKLES = ("pickle", "cloudpickle", "marshal", "shelve", "dill")
_UNPICKLING = (
    "protocol/code_sources.py",
    "core/objects.py",
)


def python_problems(path: str, text: str) -> list[str]:
    """Returns what is wrong with the imports of a file of keras_ring."""
    modules = imported_modules(text)
    problems = []
    for module in sorted(modules):
        if any(_within(module, top) for top in ("tests", "examples")):
            problems.append(f"imports {module}")
        if module == "relative import":
            problems.append("relative import; write keras_ring...")
        if _within(module, "keras_ring._core") and path != "core/native.py":
            problems.append(f"imports {module}; only core/native.py does")
        # prctl before exec: no library of ours is there.
        alone = (
            "core/native.py",
            "launch/child.py",
        )
        if _within(module, "ctypes") and path not in alone:
            problems.append(f"imports {module}; only {alone} do")
        # Loading a pickle runs what it says: theirs come over authenticated
        # links or from private files.
        if module in _PICKLES and path not in _UNPICKLING:
            problems.append(f"imports {module}; only {_UNPICKLING} do")
    # What runs now is found in one place.
    if _CONTEXT.search(text) and path not in _WITH_CONTEXT:
        problems.append(f"has a context variable; only {_WITH_CONTEXT} do")
    return problems + floor_problems(path, modules)


# Room of keras_ring -> the rooms that it may import, beside itself and what
# stands in _EVERYWHERE. Imports in functions count.
PYTHON_FLOORS = {room.path: room.uses for room in rooms.ROOMS}
_EVERYWHERE = ("errors", "_typing", "_version")
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras", "torch", "jax", "mxnet")
# What a room must not import, by what it needs.
_WITHOUT = {
    rooms.Needs.LITTLE: (*_FRAMEWORKS, "numpy", "absl"),
    rooms.Needs.NUMPY: _FRAMEWORKS,
    rooms.Needs.FRAMEWORK: (),
}
# What is loaded when it is asked for, by whoever is to run without it: file ->
# modules.
LATE = {
    "launch/function_rank.py": ("keras_ring.auto",),
    "core/native.py": ("keras_ring._core",),
}


def room_of(module: str) -> str:
    """Returns the room of a module of keras_ring, or of a path in it.

    A folder that only holds rooms, such as "keras", is in no room: "".
    """
    name = module.removesuffix(".py").replace(".", "/")
    name = name.removeprefix("keras_ring").lstrip("/")
    name = name.removesuffix("/__init__") or "__init__"
    steps = name.split("/")
    for end in range(len(steps), 0, -1):
        if (room := "/".join(steps[:end])) in PYTHON_FLOORS:
            return room
    if any(room.startswith(f"{name}/") for room in PYTHON_FLOORS):
        return ""
    return steps[0]


def floor_problems(path: str, modules: set[str]) -> list[str]:
    """Returns what a file of keras_ring imports from above it."""
    room = room_of(path)
    if room in ("", "__init__", "__main__", *_EVERYWHERE):
        return []
    if room not in PYTHON_FLOORS:
        return [f"{room} is on no floor; tests/lint/rooms.py has them"]
    allowed = ("", room, *PYTHON_FLOORS[room], *_EVERYWHERE)
    problems = [
        f"{room} imports {module}"
        for module in sorted(modules)
        if _within(module, "keras_ring")
        and room_of(module) not in allowed
        and module not in LATE.get(path, ())
    ]
    without = _WITHOUT[rooms.BY_PATH[room].needs]
    return problems + [
        f"{room} imports {module}"
        for module in sorted(modules)
        if any(_within(module, top) for top in without)
    ]
