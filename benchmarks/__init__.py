"""Measurements that docs/performance.md is made of.

Programs, run from the checkout: `python -m benchmarks.compare`. What they have
in common is in `comparing`, `fitting` and `hosting`; `peers` are scripts that
other Pythons can run too.
"""
