"""What is tested when: the tiers of docs/testing.md, for test modules.

- `@pytest.mark.long("part")`: a test that the gate leaves out; a change of what
  it protects pulls the part (`path_map`). `few` marks all but the first values
  so.
- `@pytest.mark.longer("part")`: a test of the gate that does more where the
  part is `pulled`, and is run again then.
- `@pytest.mark.alone`: a test that measures time, or sees what other tests do;
  nothing runs beside it.
- `amount`, `seed`: how much of a test that can be of any length.
"""

import os
from collections.abc import Iterable
from typing import Any

TIERS = ("quick", "gate", "pulled", "long")
# Set by conftest.py, for processes that tests start, too.
TIER_VARIABLE = "KERAS_RING_TEST_TIER"
PULLED_VARIABLE = "KERAS_RING_TEST_PULLED"
SEED_VARIABLE = "KERAS_RING_TEST_SEED"


def few(values: Iterable[Any], part: str, keep: int = 1) -> list[Any]:
    """Returns parameters of which the gate has the first `keep`."""
    import pytest  # which is not there yet where the gate begins

    return [
        value
        if index < keep
        else pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=pytest.mark.long(part),
        )
        for index, value in enumerate(values)
    ]


def amount(gate: Any, long: Any) -> Any:
    """Returns how much is to be done in this tier."""
    tier = os.environ.get(TIER_VARIABLE, "gate")
    return long if tier == "long" else gate


def pulled(part: str) -> bool:
    """Returns whether this run has a part of the long tier."""
    return part in os.environ.get(PULLED_VARIABLE, "").split()


def seed(usual: int) -> int:
    """Returns the seed of a test: `usual`, but a fresh one in the long tier.

    The header of the run says which; `KERAS_RING_TEST_SEED` repeats it.
    """
    return int(os.environ.get(SEED_VARIABLE, usual))
