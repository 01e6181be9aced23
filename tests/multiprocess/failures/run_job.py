"""Runs a function of rank_jobs.py as a program of its own.

As a user's program it ends by an uncaught exception, if it does.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.multiprocess.failures import rank_jobs

getattr(rank_jobs, sys.argv[1])(*sys.argv[2:])
