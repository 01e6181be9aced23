"""Measures collectives and checks their results: `keras-ring bench`.

`keras_ring` does not import this package. `on_tensorflow`, `on_torch` and
`on_jax` are keras_ring as systems to measure. All other modules but
`graph_step`, `job_system` and `command` need only NumPy, so that other systems
are measured by the same code (`benchmarks/peers`).
"""
