"""The frameworks on which `keras-ring bench` measures."""

# In the order of preference.
FRAMEWORKS = ("tensorflow", "torch", "jax")
