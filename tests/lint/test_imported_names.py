"""What programs beside the package import from it is there.

A benchmark that no test runs would otherwise fail when somebody needs it.
"""

import ast
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("benchmarks", "examples", "tests", "tools")


def _module(name, root=_ROOT):
    """Returns the file of a module of ours, or `None`."""
    path = root.joinpath(*name.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def _names(file):
    """Returns what a module defines, or `None` if it does so when asked."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {
                (alias.asname or alias.name).split(".")[0]
                for alias in node.names
            }
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return None if "__getattr__" in names else names


def missing(text, root=_ROOT):
    """Yields what a program imports of ours that is not there."""
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module]
        for module in modules:
            if module.split(".")[0] != "keras_ring":
                continue
            file = _module(module, root)
            if file is None:
                # The native module has no file in the sources.
                if module != "keras_ring._core":
                    yield module
                continue
            names = _names(file)
            if isinstance(node, ast.Import) or names is None:
                continue
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                if alias.name not in names and not _module(whole, root):
                    if whole != "keras_ring._core":
                        yield whole


@pytest.mark.parametrize("folder", _FOLDERS)
def test_imported_names_are_there(folder):
    problems = [
        f"{path.relative_to(_ROOT)}: {name}"
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for name in missing(path.read_text())
    ]
    assert not problems, problems


def test_finds_what_is_not_there(tmp_path):
    package = tmp_path / "keras_ring"
    package.mkdir()
    (package / "__init__.py").write_text("def f(): pass\n")
    (package / "there.py").write_text("X = 1\n")
    right = "import keras_ring.there\nfrom keras_ring.there import X\n"
    right += "from keras_ring import f, there\n"
    assert not list(missing(right, tmp_path))
    wrong = "from keras_ring import gone\nfrom keras_ring.there import Y\n"
    wrong += "import keras_ring.ours\n"
    assert list(missing(wrong, tmp_path)) == [
        "keras_ring.gone",
        "keras_ring.there.Y",
        "keras_ring.ours",
    ]
