"""Tests that run in both lanes, and some that need TensorFlow 2.15."""

import sys
from pathlib import Path

# Behind what is installed: in the lane of TensorFlow 2.15, keras_ring is not
# that of the checkout.
_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)
