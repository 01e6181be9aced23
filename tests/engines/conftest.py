"""Jobs that something else than keras_ring starts."""

import re
from pathlib import Path

from tests.hosts.conftest import jobs, lab

__all__ = ["jobs", "lab"]

ROOT = Path(__file__).parents[2]
SUMS = str(ROOT / "tests" / "hosts" / "rank_sums.py")
DIGITS = str(ROOT / "examples" / "keras_digits.py")


def places(text):
    """Returns what ranks of `rank_sums.py` say of themselves, in order."""
    return sorted(re.findall(r"\S+ sum=\S+ local=\S+ cross=\S+", text))


def weights(text):
    """Returns the checksums of the weights that ranks of DIGITS have."""
    return re.findall(r"weights sha256 (\S+)", text)
