"""Lines that TensorFlow's C++ code prints: their severity and equality."""

import re
from collections.abc import Mapping

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# The level that hides information and warnings, which do not help a user whose
# program runs.
QUIET = 2

_SEVERITIES = "IWEF"
# I0000 00:00:1795354298.905467   19947 port.cc:153] oneDNN ...
_ABSL = re.compile(
    rb"([IWEF])\d{4} [\d:.]+ +\d+ (?P<location>\S+\.(?:cc|h|py):\d+\] )"
)
# 2026-11-22 13:22:24.123456: I tensorflow/core/util/port.cc:113] oneDNN ...
_DATED = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) "
    rb"(?P<location>\S+\.(?:cc|h):\d+\] )"
)
# Lines without a severity of their own.
_CONTINUED = (
    b"WARNING: All log messages before absl::InitializeLog() is called",
    b"To enable the following instructions: ",
)


def shown_level(environment: Mapping[str, str]) -> int:
    """Returns the lowest severity that is shown; 0 for all lines."""
    text = environment.get(LEVEL, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_shown(line: bytes, level: int) -> bool:
    """Returns whether a line is to be shown at this level.

    TensorFlow itself prints lines before its logging is set up, whatever its
    variable says.

    Args:
        line: Bytes, a line of a rank's standard error.
        level: Integer, the result of `shown_level`.
    """
    if level > 0 and line.startswith(_CONTINUED):
        return False
    found = _header(line)
    if found is None or found["location"].split(b":")[0].endswith(b".py"):
        return True
    severity = _SEVERITIES.index(found[1].decode())
    return severity >= min(level, _SEVERITIES.index("F"))


def without_header(line: bytes) -> bytes:
    """Returns the part of a line that is equal in lines logged alike."""
    found = _header(line)
    if found is None:
        return line
    return found[1] + b" " + found["location"] + line[found.end() :]


def _header(line: bytes) -> re.Match[bytes] | None:
    return _ABSL.match(line) or _DATED.match(line)
