"""Facts of one host, some of which must agree on all hosts of a job."""

import collections
import platform
import resource
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from keras_ring._version import __version__
from keras_ring.launch.sharing import Machine
from keras_ring.protocol import interfaces, nvidia, tensorflow_package

# Facts that must be equal on all hosts, so that ranks compute the same.
MUST_AGREE = (
    *("keras_ring", "python", "tensorflow", "torch", "jax", "mxnet", "keras"),
    "architecture",
)
# The text of a fact that a host does not have.
MISSING = "missing"
# Levels of x86-64 that TensorFlow and our kernels distinguish, the highest
# first, with the flag in /proc/cpuinfo of the newest instructions of each.
_CPU_LEVELS = (("x86-64-v4", "avx512bw"), ("x86-64-v3", "avx2"))


def gather(ports: range | None = None) -> dict[str, Any]:
    """Returns the facts of this host, as values of JSON.

    Args:
        ports: Range of the ports that ranks may use. Defaults to any.
    """
    machine = Machine.here()
    return {
        "host": socket.gethostname(),
        "keras_ring": __version__,
        "python": platform.python_version(),
        "tensorflow": tensorflow_package.installed_version(),
        **{name: _version(name) for name in ("torch", "jax", "mxnet", "keras")},
        "architecture": platform.machine(),
        "interpreter": sys.executable,
        "cpu": _cpu_level(),
        "cores": machine.cores,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        **gpu_facts(),
        "free_ports": None if ports is None else _num_free(ports),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "addresses": [
            [each.interface, each.address]
            for each in interfaces.own_addresses()
        ],
        "time": time.time(),
    }


def gpu_facts(driver: Path | None = None) -> dict[str, Any]:
    """Returns the GPUs of this host and the version of their driver, or `{}`.

    Args:
        driver: Path, where the driver's module tells of itself. Defaults to
            that of Linux.
    """
    where = () if driver is None else (driver,)
    models = nvidia.models(*where)
    if not models:
        return {}
    return {
        "gpus": [
            f"{number} {model}"
            for model, number in sorted(collections.Counter(models).items())
        ],
        "gpu_driver": nvidia.version(*where) or MISSING,
    }


def _cpu_level() -> str:
    """Returns the level of the processor's instruction set."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(line for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return platform.machine()
    known = flags.split()
    return next(
        (level for level, flag in _CPU_LEVELS if flag in known), "x86-64-v2"
    )


def _num_free(ports: range) -> int:
    """Returns the number of these ports that are free to listen on."""
    count = 0
    for port in ports:
        try:
            interfaces.listen("", range(port, port + 1), 1).close()
        except OSError:
            continue
        count += 1
    return count


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
