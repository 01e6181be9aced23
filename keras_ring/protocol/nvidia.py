"""The GPUs of this host, as the module of NVIDIA's driver tells of them.

Its library takes a second to open, and must not be open in a process that
forks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia")


def models(driver: Path = _DRIVER) -> list[str]:
    """Returns the models of the GPUs, such as `"NVIDIA H100 80GB HBM3"`.

    Args:
        driver: Path, the directory of the driver's module.
    """
    found = []
    for path in sorted(driver.glob("gpus/*/information")):
        fields = dict(
            line.partition(":")[::2] for line in path.read_text().splitlines()
        )
        found.append(fields.get("Model", "GPU").strip())
    return found


def visible(environment: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that programs may use, as they are named there.

    Args:
        environment: The environment variables of the programs. Without
            `CUDA_VISIBLE_DEVICES`, they may use all GPUs of this host.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(number) for number in range(len(models()))]
    words = [word.strip() for word in named.split(",")]
    # What follows a word that names none counts no more.
    return list(itertools.takewhile(lambda word: word not in ("", "-1"), words))


def version(driver: Path = _DRIVER) -> str:
    """Returns the version of the driver, such as `"580.159.04"`, or `""`."""
    try:
        text = (driver / "version").read_text()
    except OSError:
        return ""
    found = re.search(r"\d+\.[\d.]+", text)
    return found.group() if found else ""
