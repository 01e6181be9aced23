"""Builds the native libraries with CMake and ninja, then packages them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def tensorflow_settings() -> dict[str, str]:
    """What CMake must know of the TensorFlow to build for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    definitions = [
        flag[2:]
        for flag in tf.sysconfig.get_compile_flags()
        if flag.startswith("-D")
    ]
    major, minor = tf.__version__.split(".")[:2]
    return {
        "TF_MINOR": f"{major}_{minor}",
        "TF_INCLUDE_DIR": tf.sysconfig.get_include(),
        "TF_LIBRARY_DIR": tf.sysconfig.get_lib(),
        "TF_DEFINITIONS": ";".join(definitions),
        "TF_ABI_DEFINITIONS": ";".join(
            d for d in definitions if d.startswith("_GLIBCXX_USE_CXX11_ABI")
        ),
    }


class CMakeBuild(build_ext):
    """Runs CMake once; it puts all libraries beside `keras_ring._core`."""

    def build_extension(self, ext: Extension) -> None:
        import pybind11

        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        tensorflow = tensorflow_settings()
        # Kept, so that a wheel after an editable install compiles nothing.
        tag = f"{sys.implementation.cache_tag}-tf{tensorflow['TF_MINOR']}"
        build = ROOT / "build" / f"native-{tag}"
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "KERAS_RING_OUTPUT_DIR": str(package),
            "Python_EXECUTABLE": sys.executable,
            "pybind11_DIR": pybind11.get_cmake_dir(),
            **tensorflow,
        }
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
        configure += [f"-D{name}={value}" for name, value in settings.items()]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build)], check=True)

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
