"""The source archive, its metadata, and which TensorFlow is built for."""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


target = _load("target_frameworks")
source_archive = _load("check_source_archive")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Returns the names in the source archive, and its metadata."""
    out = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [
            *(sys.executable, "setup.py", "--quiet"),
            *("egg_info", "--egg-base", str(out)),
            *("sdist", "--dist-dir", str(out)),
        ],
        cwd=ROOT,
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as tar:
        names = {"/".join(Path(n).parts[1:]) for n in tar.getnames()}
        (info,) = (
            n
            for n in tar.getnames()
            if n.count("/") == 1 and n.endswith("PKG-INFO")
        )
        text = tar.extractfile(info).read().decode()
    return names, Parser().parsestr(text)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("csrc/base/dtype.cc", True),
        ("CMakeLists.txt", True),
        (".venv/include/tensorflow/core/op.h", False),
        (".venv-tf215/include/tensorflow/core/op.h", False),
        ("build/core/version.h", False),
        ("tests/cpp/main.cc", False),
    ],
)
def test_what_is_installed_or_made_is_not_looked_for(name, needed):
    assert source_archive.is_needed(Path(name)) is needed


def test_the_archive_has_what_the_build_reads(archive):
    names, _ = archive
    needed = {
        *("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml"),
        *("setup.py", "tools/build_backend.py", "tools/target_frameworks.py"),
    }
    for folder in ("csrc", "tf_ops", "xla_ops", "tools/cmake", "keras_ring"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".so", ".pyc"):
                needed.add(str(path.relative_to(ROOT)))
    assert len(needed) > 500
    assert sorted(needed - names) == []
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_metadata_of_the_package(archive):
    _, info = archive
    assert info["License-Expression"] == "Apache-2.0"
    assert info["License-File"] == "LICENSE"
    assert info["Author"] == "keras_ring developers"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    tensorflows = [
        text
        for text in info.get_all("Requires-Dist")
        if text.startswith(("tensorflow", "tf-"))
    ]
    # Of an extra alone: who has one must not get another one over it.
    assert len(tensorflows) == 2
    for text in tensorflows:
        name, extra = re.fullmatch(
            r'([a-z-]+)[^;]+; extra == "(.+)"', text
        ).groups()
        assert name == extra
        bounds = set(target.RANGE.split(","))
        assert bounds == set(re.findall(r"[<>=]+[0-9.]+", text))


def _environment(directory, name=None, version="2.18.1"):
    """Makes an environment, with a TensorFlow or without."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)],
        check=True,
        timeout=60,
    )
    if name is not None:
        (site,) = directory.glob("lib/python*/site-packages")
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    return str(directory / "bin" / "python")


def _requirements(python, hidden, **variables):
    """Asks as pip does: by that interpreter, with what it has hidden."""
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    )
    code = (
        "import sys\n"
        "from importlib import metadata\n"
        "assert not [d for d in metadata.distributions()]\n"
        "import target_frameworks\n"
        "print(target_frameworks.requirements())\n"
    )
    path = os.pathsep.join([str(hidden), str(TOOLS)])
    return subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **variables},
        cwd=hidden,  # a checkout that a wheel was built in tells of a package
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )


def test_the_tensorflow_that_is_installed_is_built_for(tmp_path):
    python = _environment(tmp_path / "env", "tensorflow-cpu")
    asked = _requirements(python, tmp_path / "hidden")
    # Nothing is fetched: the build reads it where it is.
    assert asked.stdout == "[]\n"
    assert "building for tensorflow-cpu 2.18.1" in asked.stderr
    assert python in asked.stderr


def test_without_one_the_newest_is_built_for(tmp_path):
    python = _environment(tmp_path / "env")
    # Not that of the process that asks, which has another environment.
    asked = _requirements(
        python, tmp_path / "hidden", KERAS_RING_BUILD_PYTHON=python
    )
    assert asked.stdout == f"['tensorflow{target.RANGE}']\n"
    assert f"building for the newest of {target.RANGE}" in asked.stderr


def test_another_framework_needs_no_tensorflow(tmp_path, monkeypatch):
    python = _environment(tmp_path / "env", "torch", "2.13.0+cpu")
    asked = _requirements(
        python, tmp_path / "hidden", KERAS_RING_BUILD_PYTHON=python
    )
    assert asked.stdout == "[]\n"
    assert f"building without TensorFlow: {python} has torch" in asked.stderr
    monkeypatch.setenv("KERAS_RING_BUILD_PYTHON", python)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert target.tensorflow_facts() is None


def test_that_of_another_environment_that_is_named(tmp_path):
    python = _environment(tmp_path / "env")
    other = _environment(tmp_path / "other", "tensorflow", "2.16.2")
    asked = _requirements(
        python, tmp_path / "hidden", KERAS_RING_BUILD_PYTHON=other
    )
    assert asked.stdout == "[]\n"
    assert f"building for tensorflow 2.16.2, which {other}" in asked.stderr


@pytest.mark.parametrize(
    ("command", "variables", "expected"),
    [
        (["/env/bin/python", "-m", "build"], {}, "/env/bin/python"),
        (["bin/python3", "-m", "build"], {}, "{here}/bin/python3"),
        (
            ["uv", "pip", "install", "--python", "/a/python3.11", "."],
            {"VIRTUAL_ENV": "/env"},
            "/a/python3.11",
        ),
        (["uv", "pip", "install", "-p={here}", "."], {}, "{here}/bin/python"),
        (["uv", "pip", "install"], {"VIRTUAL_ENV": "/e"}, "/e/bin/python"),
        (["uv", "pip", "install"], {"CONDA_PREFIX": "/e"}, "/e/bin/python"),
        (
            ["uv", "sync"],
            {"UV_PROJECT_ENVIRONMENT": "e", "VIRTUAL_ENV": "/other"},
            "{here}/e/bin/python",
        ),
        (["uv", "sync"], {}, "{here}/.venv/bin/python"),
    ],
)
def test_what_a_tool_builds_for(command, variables, expected, tmp_path):
    (tmp_path / ".venv").mkdir()
    here = str(tmp_path)
    command = [word.format(here=here) for word in command]
    named = list(target._named_by(command, variables, tmp_path))
    assert named == [expected.format(here=here)]


def test_facts_of_this_environment():
    facts = target.tensorflow_facts()
    assert facts.version == metadata.version("tensorflow")
    assert (Path(facts.include_dir) / "tensorflow").is_dir()
    assert list(Path(facts.library_dir).glob("libtensorflow_framework.so*"))
    assert any(flag.startswith("-D") for flag in facts.flags)
