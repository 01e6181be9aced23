"""Imports in the order of its argument, then reduces one large tensor.

Prints the bytes in the arena, and what TensorFlow's loader is called. A program
of its own, since the order of imports is what it is about.
"""

import importlib
import sys


def main(order):
    """Imports what `order` names, makes something on the way, reduces."""
    for name in order.split(","):
        if name == "tensor":
            importlib.import_module("tensorflow").zeros([3])
        elif name == "session":
            v1 = importlib.import_module("tensorflow").compat.v1
            with v1.Session(graph=v1.Graph()):
                pass
        elif name == "config":
            config = importlib.import_module("tensorflow").config
            config.threading.set_inter_op_parallelism_threads(2)
            config.list_physical_devices()
        elif name == "devices":
            config = importlib.import_module("tensorflow").config
            config.list_logical_devices()
        elif name == "function":
            importlib.import_module("tensorflow").function(lambda x: x + 1)
        elif name == "data":
            data = importlib.import_module("tensorflow").data
            list(data.Dataset.range(3))
        elif name == "model":
            keras = importlib.import_module("keras")
            keras.Sequential([keras.layers.Dense(3)]).build((2, 2))
        else:
            importlib.import_module(name)
    tf = importlib.import_module("tensorflow")
    kr = importlib.import_module("keras_ring")
    kr.init()
    total = kr.allreduce(tf.ones([1 << 20]), kr.Sum, name="x")
    if not bool((total.numpy() == kr.size()).all()):
        raise ValueError("a wrong sum")
    loader = type(tf.__spec__.loader).__name__
    print("arena", kr.metrics()["arena_bytes_in_use"], loader, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
