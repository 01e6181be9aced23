"""What is loaded, and what is said when it cannot be."""

import inspect
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import tensorflow as tf

import keras_ring as kr
from keras_ring import errors
from keras_ring.core import native, operations
from keras_ring.tensorflow import libraries
from tests.multiprocess.collectives import collective_model

ROOT = Path(__file__).parents[2]


def test_build_info_names_this_tensorflow():
    info = native.build_info()
    minor = ".".join(tf.__version__.split(".")[:2])
    assert minor in info["tf_version_built"]
    assert any(name.startswith("libkeras_ring") for name in info["libraries"])


def test_dtypes_are_those_of_the_runtime():
    """In docstrings, in what ranks try, and in the kernels of GPUs."""
    assert {*collective_model.MOVABLE} == {*operations.carried()}
    assert {*collective_model.REDUCIBLE} == {*operations.reducible()}
    text = inspect.getdoc(kr.allreduce) + inspect.getdoc(kr.allgather)
    assert {*re.findall(r"\w+", text)} >= operations.carried()
    kernels = (ROOT / "csrc/cuda/kernels/kernels.ptx.inc").read_text()
    assert {*re.findall(r"entry fold_(\w+)", kernels)} >= operations.reducible()


@pytest.mark.parametrize("name", ["DistributedOptimizer", "allreduce"])
def test_without_tensorflow_it_says_what_to_install(name):
    code = (
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        "import keras_ring as kr\n"
        f"kr.{name}()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        timeout=60,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ModuleNotFoundError: keras_ring needs TensorFlow")
    assert "pip install tensorflow, or tensorflow-cpu, of version 2.21" in said


def test_tensorflow_is_found_by_any_name(monkeypatch):
    def version(name):
        if name != "tensorflow-cpu":
            raise metadata.PackageNotFoundError(name)
        return "2.15.1"

    monkeypatch.setattr(metadata, "version", version)
    with pytest.warns(RuntimeWarning, match=r"this is TensorFlow 2\.15\.1"):
        native.warn_of_mismatch()


def test_kernels_are_those_of_this_processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next((x for x in lines if x.startswith("flags")), "").split())
    level = "baseline"
    if {"avx2", "f16c"} <= flags:
        level = "avx2"
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
            level = "avx512"
    assert native.build_info()["cpu_level"] == level


def test_another_tensorflow_is_an_error_that_says_how_to_mend_it(monkeypatch):
    monkeypatch.setattr(tf, "__version__", "2.15.1")
    libraries.ops.cache_clear()
    try:
        with pytest.raises(errors.BuildMismatchError) as mismatch:
            libraries.ops()
    finally:
        libraries.ops.cache_clear()
    text = str(mismatch.value)
    assert "built for TensorFlow 2.21" in text
    assert "this is TensorFlow 2.15.1" in text
    assert "pip install --no-build-isolation" in text


def test_import_under_another_tensorflow_says_so():
    code = (
        "import importlib.metadata as metadata, warnings\n"
        "metadata.version = lambda name: '2.15.1'\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import keras_ring\n"
        "print([str(w.message) for w in caught])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert "built for TensorFlow 2.21" in done.stdout
    assert "this is TensorFlow 2.15.1" in done.stdout
    assert "pip install --no-build-isolation" in done.stdout


def test_a_missing_library_is_an_error_that_says_how_to_mend_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_ring._core", None)
    native.core.cache_clear()
    try:
        with pytest.raises(errors.BuildMismatchError, match="pip install"):
            native.core()
    finally:
        native.core.cache_clear()


def test_import_loads_no_tensorflow_and_nothing_native():
    code = (
        "import sys, keras_ring, keras_ring.launch.cli.cli; "
        "assert 'tensorflow' not in sys.modules; "
        "assert 'keras_ring._core' not in sys.modules; "
        "assert 'keras_ring.bench' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_resolves():
    for name in kr.__all__:
        assert getattr(kr, name) is not None
    assert set(kr.__all__) <= set(dir(kr))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kr.nothing  # noqa: B018


def test_a_variable_that_does_not_parse(monkeypatch):
    monkeypatch.setenv("KERAS_RING_CYCLE_TIME", "soon")
    with pytest.raises(
        errors.ConfigurationError, match="KERAS_RING_CYCLE_TIME is 'soon'"
    ):
        kr.init()
    monkeypatch.delenv("KERAS_RING_CYCLE_TIME")
    kr.init()  # after a failed one
    assert kr.size() == 1
    kr.shutdown()


def test_xla_is_built_for_the_tensorflow_it_was_tested_with():
    minor = ".".join(tf.__version__.split(".")[:2])
    assert kr.xla_built() == (minor == "2.21")


def test_without_xla_a_compiled_function_says_what_is_missing(monkeypatch):
    # Autograph would show it as an error of its own, with the same text.
    step = tf.function(
        lambda x: kr.allreduce(x, name="x"), jit_compile=True, autograph=False
    )
    monkeypatch.setattr(native, "_PACKAGE", native._PACKAGE / "none")
    monkeypatch.setattr(libraries, "ops", lambda: None)
    libraries.xla_ops.cache_clear()
    try:
        assert not kr.xla_built()
        with pytest.raises(errors.BuildMismatchError) as missing:
            step(tf.ones([3]))
    finally:
        libraries.xla_ops.cache_clear()
    text = str(missing.value)
    assert "not available in functions with `jit_compile=True`" in text
    assert "libkeras_ring_xla_" in text
