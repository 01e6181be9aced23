"""What the figures were taken on."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import keras_ring as kr

ROOT = Path(__file__).resolve().parents[2]


def facts():
    """Returns the machine's and the versions' names."""
    return {
        "date": datetime.datetime.now()
        .astimezone()
        .isoformat(timespec="minutes"),
        "CPU": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        ),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "keras_ring": kr.__version__,
        **{name: _version(name) for name in ("tensorflow", "keras", "numpy")},
        "commit": _commit(),
        "load before": round(os.getloadavg()[0], 2),
    }


def _cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit():
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=10
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
