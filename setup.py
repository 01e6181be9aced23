"""Builds the native libraries with CMake and ninja, then packages them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import target_frameworks  # noqa: E402


class CMakeBuild(build_ext):
    """Builds the core and its adapters, and puts all beside `_core`.

    The builds are kept: one of the core, one for each Python and one for each
    version of a framework. So a wheel after an editable install compiles
    nothing.
    """

    def build_extension(self, ext: Extension) -> None:
        import pybind11

        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        builds = ROOT / "build"
        core = {"KERAS_RING_CORE_DIR": builds / "core"}
        self._build(ROOT, builds / "core", package, {})
        self._build(
            ROOT / "keras_ring" / "core",
            builds / f"python-{sys.implementation.cache_tag}",
            package,
            {
                **core,
                "Python_EXECUTABLE": sys.executable,
                "pybind11_DIR": pybind11.get_cmake_dir(),
            },
        )
        for name, prefix, sources, facts in (
            (
                *("tensorflow", "TF", ROOT / "tf_ops"),
                target_frameworks.tensorflow_facts(),
            ),
            (
                *("torch", "TORCH", ROOT / "keras_ring" / "torch"),
                target_frameworks.torch_facts(),
            ),
            (
                *("jax", "JAX", ROOT / "keras_ring" / "jax"),
                target_frameworks.jax_facts(),
            ),
        ):
            if facts is None:
                continue
            self._build(
                sources,
                builds / f"{name}-{facts.minor}",
                package,
                {
                    **core,
                    f"{prefix}_MINOR": facts.minor,
                    f"{prefix}_INCLUDE_DIR": facts.include_dir,
                    f"{prefix}_LIBRARY_DIR": facts.library_dir,
                    f"{prefix}_DEFINITIONS": facts.definitions,
                },
            )

    def _build(
        self,
        source: Path,
        build: Path,
        package: Path,
        settings: Mapping[str, object],
    ) -> None:
        """Configures, builds and installs one project into the package."""
        command = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja"]
        # Said each time: of an isolated build, pip removes that of the last.
        settings = {**settings, "CMAKE_MAKE_PROGRAM": shutil.which("ninja")}
        for name, value in settings.items():
            words = value if isinstance(value, list) else [str(value)]
            command.append(f"-D{name}={';'.join(words)}")
        command += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        subprocess.run(command, check=True)
        subprocess.run(["cmake", "--build", str(build)], check=True)
        subprocess.run(
            ["cmake", "--install", str(build), "--prefix", str(package)],
            check=True,
        )

    def copy_extensions_to_source(self) -> None:
        """Of an editable install: all libraries, not the extension alone."""
        for library in (Path(self.build_lib) / "keras_ring").glob("*.so"):
            shutil.copy2(library, ROOT / "keras_ring" / library.name)


def version() -> str:
    text = (ROOT / "keras_ring" / "_version.py").read_text()
    found = re.search(r'__version__ = "(.+)"', text)
    assert found is not None
    return found.group(1)


setup(
    version=version(),
    ext_modules=[Extension("keras_ring._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
