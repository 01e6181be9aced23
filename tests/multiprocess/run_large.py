"""Runs `reduce_large_until_death` as a program of its own.

As a user's program it ends by an uncaught exception, if it does.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.multiprocess import rank_zero_copy_ends

rank_zero_copy_ends.reduce_large_until_death(sys.argv[1])
