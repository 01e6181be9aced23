"""Names for values of TensorFlow and Keras, which ship no types.

To mypy each of them is `Any`; the name tells a reader what is meant. `Any`
itself stands where any object may come.
"""

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
