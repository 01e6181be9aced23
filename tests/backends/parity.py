"""Prints the parity table of Keras on another framework.

`KERAS_BACKEND=torch python tests/backends/parity.py`, for in the environment of
a framework the keras_ring that is installed must come before that of the
checkout. Words and options are those of `python -m tests.keras.parity`.
"""

import sys
from pathlib import Path

# What is installed comes first.
sys.path.append(str(Path(__file__).parents[2]))

from tests.keras.parity.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
