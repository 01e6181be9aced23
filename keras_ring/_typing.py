"""Names for values of TensorFlow and Keras, which have no type hints.

For mypy, each name is `Any` or contains it. The name tells readers which kind
of value is meant. `Any` itself is used for values of any type.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

# Includes the classes of Keras 2 and Keras 3.
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
# The source of a gradient: a variable or a tensor.
Source: TypeAlias = Any
# A structure of `tf.nest`: nested lists, tuples and dictionaries of values.
Structure: TypeAlias = Any
# A `keras.utils.PyDataset`, which Keras 2 calls a `Sequence`.
PyDataset: TypeAlias = Any
# The logs of callbacks: results of losses and metrics, by name.
Logs: TypeAlias = dict[str, Any]
# A value with rows: a NumPy array, a tensor or a pandas data frame.
Array: TypeAlias = Any

# An intracommunicator of mpi4py, which is optional.
Communicator: TypeAlias = Any
