"""Which trace a job belongs to, as W3C's Trace Context writes it.

https://www.w3.org/TR/trace-context/ - all that tracing tools need to put what
launcher and ranks say beside what started them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

# Where a process finds that of the one that has started it.
VARIABLE = "TRACEPARENT"
# Later versions may have more at the end.
_HEADER = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})"
    r"-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED = "01"
_LABEL = "keras_ring trace"


@dataclass(frozen=True)
class TraceContext:
    """A trace, and a span in it.

    Args:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        flags: 2 hexadecimal digits, handed on as they are.
    """

    trace_id: str
    span_id: str
    flags: str = _SAMPLED

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TraceContext | None:
        """Returns what the environment names; None without anything valid."""
        found = _HEADER.fullmatch(environment.get(VARIABLE, ""))
        return None if found is None else cls(*found.groups())

    @classmethod
    def of_launcher(cls, environment: Mapping[str, str]) -> TraceContext:
        """Returns a span of its own, in the trace of who has started it."""
        above = cls.of(environment)
        span_id = secrets.token_hex(8)
        if above is None:
            return cls(secrets.token_hex(16), span_id)
        return cls(above.trace_id, span_id, above.flags)

    @classmethod
    def of_key(cls, key: str) -> TraceContext:
        """Returns what ranks have in common that nobody has told of a trace.

        Args:
            key: The job's secret, which this does not tell.
        """
        digits = _digest(_LABEL, key)
        return cls(digits[:32], digits[32:48])

    def of_rank(self, rank: int) -> TraceContext:
        """Returns the span of a rank, which others can tell, too."""
        digits = _digest(_LABEL, self.header, str(rank))
        return TraceContext(self.trace_id, digits[:16], self.flags)

    @property
    def header(self) -> str:
        """The value of the variable."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
