"""The frameworks whose tensors `keras-ring bench` measures."""

# In the order of preference.
FRAMEWORKS = ("tensorflow", "torch", "jax")
