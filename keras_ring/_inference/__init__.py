"""`evaluate` and `predict` by all ranks together.

inference  what each does
parts      which batches a rank has
"""
