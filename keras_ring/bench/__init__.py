"""Measures collectives and checks what they return: `keras-ring bench`.

`keras_ring` does not import it. All but `ours`, `graph_step` and `command`
needs NumPy alone, so that systems without TensorFlow are measured by the same
code (`benchmarks/peers`).
"""
