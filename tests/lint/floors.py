"""The rules on who may include or import whom, as functions over text.

Kept apart from the tests that apply them to the tree, so that other tests can
show that each rule does find what it forbids.
"""

import ast
import re

# Floor -> the folders of csrc that it may include.
CPP_FLOORS = {
    "csrc/base": {"csrc/base"},
    "csrc/comm": {"csrc/base", "csrc/comm"},
    "csrc/tls": {"csrc/base", "csrc/comm", "csrc/tls"},
    "csrc/collective": {"csrc/base", "csrc/comm", "csrc/collective"},
    "csrc/control": {"csrc/base", "csrc/comm", "csrc/control"},
    "csrc/runtime": {
        "csrc/base",
        "csrc/comm",
        "csrc/collective",
        "csrc/control",
        "csrc/runtime",
    },
}
# What adapters see of the core, beside csrc/base. A tensor entry is made of a
# request, so its header counts as part of the entry's.
_KERNEL_HEADERS = {
    "csrc/runtime/runtime.h",
    "csrc/runtime/process_arena.h",
    "csrc/runtime/process_runtime.h",
    "csrc/control/tensor_entry.h",
    "csrc/control/request.h",
}
# The Python module also starts the runtime and takes its log lines.
ADAPTER_HEADERS = {
    "tf_ops": _KERNEL_HEADERS,
    "keras_ring/_runtime": {
        *_KERNEL_HEADERS,
        "csrc/runtime/runtime_factory.h",
        "csrc/runtime/log_queue.h",
    },
}
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
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
        elif header.startswith(("csrc/", "tf_ops/", "keras_ring/")):
            place = header.rpartition("/")[0]
            if place not in CPP_FLOORS[folder]:
                problems.append(f"{folder} must not include {header}")
    return problems


def adapter_problems(folder: str, text: str) -> list[str]:
    """Returns what is wrong with a file that adapts the core to others."""
    return [
        f"{folder} must not include {header}"
        for header in includes(text)
        if header.startswith("csrc/")
        and not header.startswith("csrc/base/")
        and header not in ADAPTER_HEADERS[folder]
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
    """Returns every module that a Python file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.add("relative import")
            module = node.module or ""
            found |= {module}
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


_PICKLES = ("pickle", "cloudpickle", "marshal", "shelve", "dill")
_UNPICKLING = (
    "_ops/objects.py",
    "launcher/function_job.py",
    "launcher/function_rank.py",
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
        if _within(module, "keras_ring._core") and path != "_runtime/native.py":
            problems.append(f"imports {module}; only _runtime/native.py does")
        # prctl before exec: no library of ours is there.
        alone = ("_runtime/native.py", "launcher/child.py")
        if _within(module, "ctypes") and path not in alone:
            problems.append(f"imports {module}; only {alone} do")
        # Loading a pickle runs what it says: theirs come over authenticated
        # links or from private files.
        if module in _PICKLES and path not in _UNPICKLING:
            problems.append(f"imports {module}; only {_UNPICKLING} do")
    room = path.partition("/")[0]
    if room in _LIGHT:
        problems += _light_problems(room, modules)
    return problems


# What a launcher loads: room -> what else of keras_ring it imports. The
# version is in the package itself.
_LIGHT = {
    "_launch_protocol": (),
    "launcher": ("_launch_protocol", "errors"),
    "cli": ("_launch_protocol", "launcher"),
}


def _light_problems(room: str, modules: set[str]) -> list[str]:
    allowed = [f"keras_ring.{other}" for other in (room, *_LIGHT[room])]
    heavy = ("tensorflow", "keras", "numpy", "absl")
    problems = [
        f"{room} imports {module}"
        for module in sorted(modules)
        if any(_within(module, top) for top in heavy)
    ]
    problems += [
        f"{room} imports {module}"
        for module in sorted(modules)
        if module.startswith("keras_ring.")
        and not any(_within(module, top) for top in allowed)
    ]
    return problems
