"""Names for values of TensorFlow and Keras, which ship no types.

To mypy each of them is `Any`, or made of it; the name tells a reader what is
meant. `Any` itself stands where any object may come.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

# Also Keras' own, of either version.
Tensor: TypeAlias = Any
Variable: TypeAlias = Any
DType: TypeAlias = Any
Graph: TypeAlias = Any
Operation: TypeAlias = Any
Dataset: TypeAlias = Any
Layer: TypeAlias = Any
Model: TypeAlias = Any
Metric: TypeAlias = Any
Optimizer: TypeAlias = Any
Callback: TypeAlias = Any

# A tensor, `tf.IndexedSlices` or `None`.
Gradient: TypeAlias = Any
GradsAndVars: TypeAlias = Iterable[tuple[Gradient, Variable]]
# What a gradient is taken by: a variable, or a tensor.
Source: TypeAlias = Any
# What `tf.nest` takes: lists, tuples and dicts, in one another, of something.
Structure: TypeAlias = Any
# A `keras.utils.PyDataset`, which Keras 2 calls a `Sequence`.
PyDataset: TypeAlias = Any
# What callbacks are told: results of losses and metrics, by name.
Logs: TypeAlias = dict[str, Any]
# What has rows: an array of NumPy, a tensor, a frame of pandas.
Array: TypeAlias = Any

# An intracommunicator of mpi4py, which is optional.
Communicator: TypeAlias = Any
