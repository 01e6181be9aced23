"""What ranks of one job must have in common, as one host has it."""

import platform
import resource
import socket
import sys
import time
from importlib import metadata
from typing import Any

from keras_ring._launch_protocol import interfaces
from keras_ring._version import __version__
from keras_ring.launcher.sharing import Machine

# Equal on all hosts, or ranks would not compute the same.
MUST_AGREE = ("keras_ring", "python", "tensorflow", "keras", "architecture")
# What TensorFlow's package may be called.
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-intel")


def gather() -> dict[str, Any]:
    """Returns the facts of this host, as values of JSON."""
    machine = Machine.here()
    return {
        "host": socket.gethostname(),
        "keras_ring": __version__,
        "python": platform.python_version(),
        "tensorflow": _version(*_TENSORFLOWS),
        "keras": _version("keras"),
        "architecture": platform.machine(),
        "interpreter": sys.executable,
        "cores": machine.cores,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "addresses": [
            [each.interface, each.address]
            for each in interfaces.own_addresses()
        ],
        "time": time.time(),
    }


def _version(*packages: str) -> str:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "missing"
