"""Measures collectives and checks their results: `keras-ring bench`.

`keras_ring` does not import this package. All modules but `ours`, `graph_step`
and `command` need only NumPy, so that systems without TensorFlow are measured
by the same code (`benchmarks/peers`).
"""
