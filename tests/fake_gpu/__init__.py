"""A GPU for TensorFlow on a machine without one.

A test builds it, and hands `environment()` to its ranks; a rank calls `load`.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from keras_ring.core import native

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import target_frameworks  # noqa: E402

_FOLDER = "KERAS_RING_TEST_FAKE_GPU"
_KINDS = (
    *("allreduce", "reducescatter", "broadcast", "allgather", "alltoall"),
    *("barrier", "join", "topology"),
)


def device_type() -> str:
    """Returns the type of the fake device, as in "/GPU:0".

    A TensorFlow for CUDA has kernels of its own for "GPU", which know nothing
    of this device.
    """
    import tensorflow as tf

    built_for_cuda = tf.sysconfig.get_build_info()["is_cuda_build"]
    return "KR_FAKE" if built_for_cuda else "GPU"


@functools.cache
def build() -> Path:
    """Builds the libraries for the imported TensorFlow; returns their folder.

    They are kept: a second build takes a second.
    """
    tensorflow = target_frameworks.tensorflow_facts()
    minor = tensorflow.minor
    core = ROOT / "build" / "core"
    folder = ROOT / "build" / f"fake-gpu-tf{minor}"
    settings = {
        "CORE_DIR": core,
        "FAKE_GPU_TYPE": device_type(),
        "PACKAGE_DIR": native.library_path("tf", tensorflow.version).parent,
        "TF_MINOR": minor,
        "TF_INCLUDE_DIR": tensorflow.include_dir,
        "TF_LIBRARY_DIR": tensorflow.library_dir,
        "TF_DEFINITIONS": ";".join(tensorflow.definitions),
    }
    _cmake("--build", str(core), "--target", "keras_ring_static")
    _cmake(
        *("-S", str(ROOT / "tests" / "fake_gpu"), "-B", str(folder)),
        *("-G", "Ninja"),
        *(f"-D{name}={value}" for name, value in settings.items()),
    )
    _cmake("--build", str(folder))
    return folder


def _cmake(*arguments: str) -> None:
    path = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    )
    command = [shutil.which("cmake", path=path) or "cmake", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")


def environment(seed: int = 1) -> Mapping[str, str]:
    """Returns what a rank needs to find the device, and our driver.

    Args:
        seed: Draws how long each piece of work is delayed.
    """
    folder = build()
    return {
        _FOLDER: str(folder),
        "KERAS_RING_CUDA_DRIVER": str(folder / "libfake_cuda.so"),
        "KERAS_RING_TEST_GPU_SEED": str(seed),
    }


def load() -> ModuleType:
    """Makes the devices known to TensorFlow; returns the ops of tests.

    To be called before TensorFlow has looked for devices.
    """
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    from keras_ring.tensorflow import libraries

    folder = Path(os.environ[_FOLDER])
    libraries.ops()
    load_library.load_pluggable_device_library(
        str(folder / "libkeras_ring_fake_gpu.so")
    )
    ops: ModuleType = tf.load_op_library(
        str(folder / "libkeras_ring_fake_gpu_ops.so")
    )
    tf.RegisterGradient("KerasRingTestSlow")(lambda _, gradient: gradient)
    return ops


def device(number: int = 0) -> str:
    """Returns the name of a device, for `tf.device`."""
    return f"/device:{device_type()}:{number}"


def place_collectives(ops: ModuleType, number: int = 0, ms: int = 0) -> None:
    """Has each collective run on a device, and the rest where it would.

    No op but ours has a kernel for the fake device.

    Args:
        ops: What `load` returned.
        number: The number of the device.
        ms: How long the device works on each tensor before it is there.
    """
    import tensorflow as tf

    from keras_ring.tensorflow import libraries

    native_ops = libraries.ops()

    def placed(function: Callable[..., Any]) -> Callable[..., Any]:
        def late(tensor: Any) -> Any:
            return ops.keras_ring_test_slow(x=tensor, ms=ms)

        @functools.wraps(function)
        def call(**arguments: Any) -> Any:
            with tf.device(device(number)):
                if "tensors" in arguments:
                    tensors = [late(one) for one in arguments["tensors"]]
                    arguments["tensors"] = tensors
                if "tensor" in arguments:
                    arguments["tensor"] = late(arguments["tensor"])
                return function(**arguments)

        return call

    for kind in _KINDS:
        name = f"keras_ring_{kind}"
        setattr(native_ops, name, placed(getattr(native_ops, name)))
