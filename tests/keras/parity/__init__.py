"""Whether ranks train what one process trains on the whole batch.

`python -m tests.keras.parity` prints the table; `tests/keras/test_parity.py`
asserts its bounds.
"""
