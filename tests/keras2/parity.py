"""Prints the parity tables of Keras 2 and of TensorFlow 1 programs.

`python tests/keras2/parity.py`, for in the lane of TensorFlow 2.15 the
keras_ring that is installed must come before that of the checkout.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
# What is installed comes first.
sys.path += [str(_HERE), str(_HERE.parents[1])]

import rank_keras2  # noqa: E402
import rank_tf1  # noqa: E402
import test_keras2  # noqa: E402
import test_tf1  # noqa: E402
from comparison import bound, difference  # noqa: E402
from lane import run_calls  # noqa: E402

# Words of calls that say nothing to a reader.
SILENT = ("train", "fits", "half", "loop", "new")


def weights(result):
    return result["weights"] if isinstance(result, dict) else result


def main():
    bad = 0
    for title, module, calls in (
        ("Keras 2", rank_keras2, [*test_keras2.PARITY, *test_keras2.PROGRAMS]),
        ("tf.compat.v1.train", rank_tf1, test_tf1.PARITY),
    ):
        one, two = (run_calls(module, count, calls) for count in (1, 2))
        print(f"\n| {title} | difference | bound | reduced |")
        print("|---|---:|---:|---:|")
        for call in calls:
            first, second = two(*call)
            found = difference(weights(one(*call)[0]), weights(first))
            equal = weights(first) == weights(second)
            reduced = first["collectives"] if isinstance(first, dict) else ""
            words = (word for word in call if word not in SILENT)
            name = " ".join(str(word) for word in words).replace("_", " ")
            text = f"{found:.1e}" if equal else "ranks differ"
            print(f"| {name} | {text} | {bound(call):.1e} | {reduced} |")
            bad += not equal or not found <= bound(call)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
