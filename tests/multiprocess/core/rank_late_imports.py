"""What ranks do that begin before the program has a framework."""

import sys
import time

import keras_ring as kr
from keras_ring import errors
from keras_ring.core import import_hooks

FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


def nothing_loaded():
    """Returns the frameworks that a program without any has in the end."""
    kr.init()
    assert kr.broadcast_object(kr.rank()) == 0
    assert kr.allgather_object(kr.rank()) == list(range(kr.size()))
    first = kr.add_process_set([0])
    kr.remove_process_set(first)
    kr.metrics()
    kr.shutdown()
    return [name for name in FRAMEWORKS if name in sys.modules]


def seconds_to_first_result():
    """Returns how long it takes, once NumPy is there."""
    import numpy as np

    began = time.monotonic()
    from keras_ring import core

    core.init()
    core.allreduce(np.ones(1))
    return time.monotonic() - began


def _fit(optimizer):
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    x = np.arange(16.0).reshape(8, 2)
    model.fit(x, x[:, :1], batch_size=4, epochs=1, verbose=0)
    return model


def a_framework_that_comes_later(first):
    """Trains after `init`, with a framework that is imported after it."""
    kr.init()
    assert "tensorflow" not in sys.modules
    __import__(first)
    import keras

    try:
        _fit(keras.optimizers.SGD(0.01))
    except errors.LocalUpdateError:
        pass
    else:
        raise AssertionError("ranks have trained apart")
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.01))
    try:
        _fit(optimizer)
    except errors.ConsistencyError:
        pass
    else:
        raise AssertionError("ranks began with weights of their own")
    keras.utils.set_random_seed(1)
    model = _fit(kr.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    # Counted by what watches `fit`.
    assert kr.metrics()["fit_steps"] > 0
    return [weights.tolist() for weights in model.get_weights()]


def another_backend():
    """Returns what is said of training where Keras has another backend."""

    def say_openvino():
        sys.modules["keras"].backend.backend = lambda: "openvino"

    import_hooks.frameworks.after("keras", say_openvino)
    import keras

    kr.init()
    told = []
    for call in (
        lambda: _fit(keras.optimizers.SGD(0.01)),
        lambda: kr.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        lambda: kr.callbacks.MetricAverageCallback(),
    ):
        try:
            call()
        except errors.ConfigurationError as error:
            told.append(str(error))
    assert kr.allgather_object(kr.rank()) == [0, 1]
    return told


def errors_are_tensorflows_as_well():
    """The errors of arrays, in a program that has imported TensorFlow."""
    import pickle

    import numpy as np
    import tensorflow as tf

    from keras_ring import core

    kr.init()
    caught = []
    for wanted, theirs, call in (
        (
            errors.InvalidArgumentError,
            tf.errors.InvalidArgumentError,
            lambda: core.broadcast(np.ones(1), 17),
        ),
        (
            errors.FailedPreconditionError,
            tf.errors.FailedPreconditionError,
            lambda: core.allreduce(np.ones(1 + kr.rank()), name="shape"),
        ),
    ):
        try:
            call()
        except theirs as error:
            assert isinstance(error, wanted)
            assert error.code == wanted.code
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is type(error) and str(again) == str(error)
            caught.append(str(error))
    return caught
