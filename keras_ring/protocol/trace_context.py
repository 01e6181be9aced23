"""The trace to which a job belongs, in the format of W3C's Trace Context.

See https://www.w3.org/TR/trace-context/. With it, tracing tools can relate the
log lines of the launcher and the ranks to the program that started them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

# The variable with the trace context of the process that started this one.
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
        trace_id: String of 32 hexadecimal digits.
        span_id: String of 16 hexadecimal digits.
        flags: String of 2 hexadecimal digits, which are passed on unchanged.
    """

    trace_id: str
    span_id: str
    flags: str = _SAMPLED

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TraceContext | None:
        """Returns the context in the environment, or `None` if invalid."""
        found = _HEADER.fullmatch(environment.get(VARIABLE, ""))
        return None if found is None else cls(*found.groups())

    @classmethod
    def of_launcher(cls, environment: Mapping[str, str]) -> TraceContext:
        """Returns a new span, in the trace of the process that started this."""
        above = cls.of(environment)
        span_id = secrets.token_hex(8)
        if above is None:
            return cls(secrets.token_hex(16), span_id)
        return cls(above.trace_id, span_id, above.flags)

    @classmethod
    def of_key(cls, key: str) -> TraceContext:
        """Returns a common context for ranks that were given no trace.

        Args:
            key: String, the job's secret, which the result does not reveal.
        """
        digits = _digest(_LABEL, key)
        return cls(digits[:32], digits[32:48])

    def of_rank(self, rank: int) -> TraceContext:
        """Returns the span of a rank, which other processes can compute."""
        digits = _digest(_LABEL, self.header, str(rank))
        return TraceContext(self.trace_id, digits[:16], self.flags)

    @property
    def header(self) -> str:
        """The value of the variable."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
