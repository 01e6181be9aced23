"""Runs a function of rank_process_sets.py as a program of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.multiprocess import rank_process_sets

getattr(rank_process_sets, sys.argv[1])(*sys.argv[2:])
