"""`evaluate` and `predict` by all ranks together.

inference  the two functions
parts      the batches of each rank
"""
