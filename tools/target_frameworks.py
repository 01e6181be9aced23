"""Finds the frameworks to build for: those of the environment that runs it.

A tool that builds a package does so apart from that environment, so that what
is installed there is not seen. The newest TensorFlow would be fetched, built
for, and not be the one that runs: its C++ interface differs from one minor
version to the next. But a build needs no more of TensorFlow than its headers
and libraries, and these can be read where they are. Where there is none, the
newest of the range is fetched, unless the environment has PyTorch or JAX.

pip runs a build in the interpreter of the environment itself, with another
path. uv and `python -m build` make an environment, and their own process says
which one they work for.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# As the extras of pyproject.toml.
RANGE = ">=2.15,<2.22"
# The interpreter in whose environment TensorFlow is, where nothing tells.
VARIABLE = "KERAS_RING_BUILD_PYTHON"

# Distributions that are TensorFlow, and those that need no TensorFlow.
_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")
_TORCH = ("torch",)
_JAX = ("jaxlib",)
# A build for these needs no TensorFlow.
_OTHERS = (*_TORCH, *_JAX)
_LOOK = """
import json, sys
from importlib import metadata
for name in sys.argv[1:]:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        continue
    print(json.dumps([name, version, sys.version_info[:2]]))
    break
"""
_TENSORFLOW_FACTS = """
import json
import tensorflow as tf
print(json.dumps([
    tf.__version__,
    tf.sysconfig.get_include(),
    tf.sysconfig.get_lib(),
    tf.sysconfig.get_compile_flags(),
]))
"""
_TORCH_FACTS = """
import json, os
import torch
place = os.path.dirname(torch.__file__)
print(json.dumps([
    torch.__version__,
    os.path.join(place, "include"),
    os.path.join(place, "lib"),
    [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"],
]))
"""
_JAX_FACTS = """
import json, os
import jaxlib, jaxlib.version
place = os.path.dirname(jaxlib.__file__)
print(json.dumps(
    [jaxlib.version.__version__, os.path.join(place, "include"), place, []]
))
"""
# What `uv pip install` is told the environment by.
_PYTHON_OPTION = re.compile(r"(?:--python|-p)(?:=(.*))?")


@dataclass(frozen=True)
class Installed:
    """A framework of another environment.

    Args:
        python: The interpreter of that.
        name: What the distribution is called.
        version: Its version.
    """

    python: str
    name: str
    version: str


@dataclass(frozen=True)
class Facts:
    """What the build must know of a framework.

    Args:
        version: Such as `"2.21.0"`.
        include_dir: Where its headers are.
        library_dir: Where its libraries are.
        flags: What its headers are to be compiled with.
    """

    version: str
    include_dir: str
    library_dir: str
    flags: tuple[str, ...]

    @property
    def minor(self) -> str:
        """The minor version, as in names of libraries: `"2_21"`."""
        return "_".join(self.version.split(".")[:2])

    @property
    def definitions(self) -> list[str]:
        """What `flags` define."""
        return [flag[2:] for flag in self.flags if flag.startswith("-D")]


def requirements() -> list[str]:
    """Returns what the build environment must have of TensorFlow."""
    found = find()
    if found is not None:
        _say(
            f"building for {found.name} {found.version}, which "
            f"{found.python} has"
        )
        return []
    other = find(_OTHERS)
    if other is not None:
        _say(f"building without TensorFlow: {other.python} has {other.name}")
        return []
    _say(f"there is no TensorFlow: building for the newest of {RANGE}")
    return [f"tensorflow{RANGE}"]


def tensorflow_facts() -> Facts | None:
    """Returns what the build must know: of this environment, or its target.

    Returns:
        `Facts`, or `None` for a build without TensorFlow.

    Raises:
        SystemExit: If there is neither TensorFlow nor another framework.
    """
    if importlib.util.find_spec("tensorflow") is not None:
        return _facts([sys.executable], _TENSORFLOW_FACTS)
    found = find()
    if found is not None:
        # Without what leads the interpreter to the build environment.
        return _facts([found.python, "-E"], _TENSORFLOW_FACTS)
    if find(_OTHERS) is None:
        sys.exit(
            f"keras_ring is built for a TensorFlow {RANGE}, and "
            f"{sys.executable} has none: pip install tensorflow, or "
            "tensorflow-cpu"
        )
    return None


def torch_facts() -> Facts | None:
    """Returns what the build must know of PyTorch, or `None` without it."""
    found = find(_TORCH)
    if found is None:
        return None
    facts = _facts([found.python, "-E"], _TORCH_FACTS)
    # A package for those who only run PyTorch may have no headers.
    return facts if os.path.isdir(f"{facts.include_dir}/c10") else None


def jax_facts() -> Facts | None:
    """Returns what the build must know of jaxlib, or `None` without it."""
    found = find(_JAX)
    if found is None:
        return None
    facts = _facts([found.python, "-E"], _JAX_FACTS)
    # The headers of older ones lack what the calls need.
    needed = f"{facts.include_dir}/xla/ffi/api/ffi.h"
    return facts if os.path.exists(needed) else None


def _facts(command: list[str], code: str) -> Facts:
    told = subprocess.run(
        [*command, "-c", code],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    version, include_dir, library_dir, flags = json.loads(
        told.stdout.splitlines()[-1]
    )
    return Facts(version, include_dir, library_dir, tuple(flags))


def find(names: tuple[str, ...] = _NAMES) -> Installed | None:
    """Returns a framework of the environment that is built for.

    Args:
        names: Those of its distributions. Defaults to those of TensorFlow.
    """
    for python in _interpreters(os.environ):
        found = _look(python, names)
        if found is not None:
            return found
    return None


def _interpreters(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields the interpreters of environments that may be the target."""
    if environment.get(VARIABLE):
        yield environment[VARIABLE]
        return
    yield sys.executable
    parent = Path(f"/proc/{os.getppid()}")
    try:
        command = _words(parent / "cmdline")
        variables = dict(
            word.split("=", 1) for word in _words(parent / "environ")
        )
        directory = Path(os.readlink(parent / "cwd"))
    except (OSError, ValueError):
        return
    yield from _named_by(command, variables, directory)


def _named_by(
    command: list[str], variables: Mapping[str, str], directory: Path
) -> Iterator[str]:
    """Yields the environments for which a process builds, by its own words.

    Args:
        command: Its command line.
        variables: Its environment.
        directory: Its working directory.
    """
    name = Path(command[0]).name if command else ""
    if name.startswith("python"):
        # pip, or `python -m build`: what runs it is what it works for.
        yield os.path.join(directory, command[0])
        return
    for word, following in zip(command, [*command[1:], ""], strict=True):
        option = _PYTHON_OPTION.fullmatch(word)
        if option is not None:
            path = os.path.join(directory, option[1] or following)
            yield _python_of(path) if os.path.isdir(path) else path
            return
    for variable in ("UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(variable):
            yield _python_of(os.path.join(directory, variables[variable]))
            return
    for above in (directory, *directory.parents):
        if (above / ".venv").is_dir():
            yield _python_of(str(above / ".venv"))
            return


def _python_of(environment: str) -> str:
    return os.path.join(environment, "bin", "python")


def _look(python: str, names: tuple[str, ...]) -> Installed | None:
    try:
        told = subprocess.run(
            [python, "-E", "-c", _LOOK, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=60,
        ).stdout
        name, version, python_version = json.loads(told)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # What is built here would not run there: that is no target.
    if python_version != list(sys.version_info[:2]):
        return None
    return Installed(python, name, version)


def _words(path: Path) -> list[str]:
    """Returns the words of a file of `/proc`, which end in zeros."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return [word for word in text.split("\0") if word]


def _say(text: str) -> None:
    print(f"keras_ring: {text}", file=sys.stderr, flush=True)
