"""Examples: the code blocks of pages, and those of public docstrings."""

import dataclasses
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Pages whose Python blocks have a test of their own, by what that is.
RUN_ELSEWHERE = {
    "README.md": "tests/unit/test_docs.py",
    "docs/jax.md": "tests/with_jax/test_documented.py",
    "docs/mxnet.md": "tests/with_mxnet/test_documented.py",
    "docs/keras_guide.md": "tests/keras/test_guide.py",
    "docs/api/jax.md": "tests/with_jax/test_documented.py",
    "docs/api/mxnet.md": "tests/with_mxnet/test_documented.py",
    "docs/api/torch.md": "tests/pytorch/test_documented.py",
    "docs/engines/mpi.md": "tests/engines/test_page.py",
    "docs/engines/ray.md": "tests/engines/test_page.py",
    "docs/migration.md": "tests/keras/test_guide.py",
    "docs/mistakes.md": "tests/keras/test_mistakes.py",
    "docs/pytorch.md": "tests/pytorch/test_documented.py",
    "docs/running.md": "tests/launcher/test_function.py",
    "docs/tutorial.md": "tests/keras/test_tutorial.py",
}


@dataclasses.dataclass(frozen=True)
class Example:
    """Code that a reader may copy.

    Attributes:
        name: Where it is, such as `kr.allreduce` or `docs/timeline.md 1`.
        code: Its text.
    """

    name: str
    code: str

    def __str__(self) -> str:
        return self.name


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a text, in order."""
    block = rf"^( *)```{language}(?: title=.*?)?\n(.*?)^\1```$"
    return [
        textwrap.dedent(code)
        for _, code in re.findall(block, text, re.M | re.S)
    ]


def page_examples() -> list[Example]:
    """Returns the Python blocks that no other test runs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [str(page.relative_to(ROOT)) for page in pages]
    return [
        Example(f"{name} {number}", code)
        for name, page in zip(names, pages, strict=True)
        if name not in RUN_ELSEWHERE
        for number, code in enumerate(blocks(page.read_text(), "python"), 1)
    ]


def docstring_examples() -> list[Example]:
    """Returns the examples of all public names, and of their methods."""
    kr = importlib.import_module("keras_ring")
    importlib.import_module("keras_ring.ray")
    core = importlib.import_module("keras_ring.core")
    return [
        *_examples("kr", kr, [*kr.__all__, "ray"]),
        *_examples("core", core, own_names(core)),
    ]


def torch_examples() -> list[Example]:
    """Returns the examples of the names that only `keras_ring.torch` has.

    They need PyTorch.
    """
    torch = importlib.import_module("keras_ring.torch")
    return _examples("torch", torch, own_names(torch))


def jax_examples() -> list[Example]:
    """Returns the examples of the names that only `keras_ring.jax` has.

    They need JAX.
    """
    jax = importlib.import_module("keras_ring.jax")
    return _examples("jax", jax, own_names(jax))


def mxnet_examples() -> list[Example]:
    """Returns the examples of the names that only `keras_ring.mxnet` has.

    They need MXNet.
    """
    mxnet = importlib.import_module("keras_ring.mxnet")
    return _examples("mxnet", mxnet, own_names(mxnet))


def own_names(package: ModuleType) -> list[str]:
    """Returns the public names of a package that are not those of the core.

    Of the core itself, those that `keras_ring` has not, or another.
    """
    if package.__name__ == "keras_ring.core":
        kr = importlib.import_module("keras_ring")
        return [
            name
            for name in package.__all__
            if getattr(package, name) is not getattr(kr, name, None)
        ]
    return [
        name
        for name in package.__all__
        if package._HOMES[name].startswith(package.__name__)
    ]


def _examples(
    prefix: str, place: ModuleType, names: list[str]
) -> list[Example]:
    return [
        Example(name, code)
        for name, value in _public(prefix, place, names)
        for code in blocks(inspect.getdoc(value) or "", "python")
    ]


def _public(
    prefix: str, place: ModuleType, names: list[str]
) -> list[tuple[str, Any]]:
    found = []
    for name in names:
        value, path = getattr(place, name), f"{prefix}.{name}"
        if isinstance(value, ModuleType):
            found += _public(path, value, _names(value))
        elif inspect.isclass(value):
            methods = [each for each in vars(value) if not each.startswith("_")]
            found += [(path, value)]
            found += [(f"{path}.{m}", getattr(value, m)) for m in methods]
        elif inspect.isroutine(value):
            found += [(path, value)]
    return found


def _names(module: ModuleType) -> list[str]:
    """Returns what a module has for others."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("keras_ring")
    ]
