"""What single ranks do in test_errors.py."""

import ctypes
import queue
import threading
import time

import tensorflow as tf

import keras_ring as kr


def _error(function):
    try:
        function()
    except tf.errors.OpError as error:
        # TensorFlow adds which node it was; ours is what all ranks share.
        text = error.message.split("}} ", 1)[-1].split(" [Op:")[0]
        return type(error).__name__, text
    raise AssertionError("no error")


def mismatches():
    kr.init()
    rank = kr.rank()
    odd = rank == 1
    x = tf.ones([4])
    cases = {
        "shape": lambda: kr.allreduce(tf.ones([5 if odd else 4]), name="e1"),
        "dtype": lambda: kr.allreduce(
            tf.ones([4], tf.int32 if odd else tf.float32), name="e2"
        ),
        "op": lambda: kr.allreduce(x, kr.Sum if odd else kr.Average, name="e3"),
        "kind": lambda: (
            kr.broadcast(x, 0, name="e4") if odd else kr.allreduce(x, name="e4")
        ),
        "root": lambda: kr.broadcast(x, 1 if odd else 0, name="e5"),
        "scale": lambda: kr.allreduce(
            x, name="e6", prescale_factor=2.0 if odd else 1.0
        ),
        "group": lambda: kr.grouped_allreduce(
            [x, x] if odd else [x, x, x], name="e7"
        ),
        "columns": lambda: kr.allgather(
            tf.ones([rank, 3 if odd else 2]), name="e8"
        ),
        "no such root": lambda: kr.broadcast(x, 99, name="e9"),
    }
    errors = {}
    for name, function in cases.items():
        errors[name] = _error(function)
        # The job goes on, and so does the name.
        assert kr.allreduce(x, kr.Sum, name="fine").numpy()[0] == kr.size()
        letter = f"e{list(cases).index(name) + 1}"
        assert kr.allreduce(x, kr.Sum, name=letter).numpy()[0] == kr.size()
    return errors


def texts():
    """The same disagreement, wherever a program may come upon it."""
    kr.init()
    x = tf.ones([5 if kr.rank() == 1 else 4])

    def reduce(name):
        return kr.allreduce(x, name=name)

    def outer():
        return tf.function(reduce)("in/nested")

    def in_session():
        with tf.Graph().as_default():
            reduced = kr.allreduce(tf.ones(x.shape), name="in/session")
            with tf.compat.v1.Session() as session:
                session.run(reduced)

    places = {
        "eager": lambda: reduce("in/eager"),
        "function": lambda: tf.function(reduce)("in/function"),
        "nested": tf.function(outer),
        # TensorFlow does not find the nodes of what has no name.
        "lambda": tf.function(lambda: reduce("in/lambda")),
        "session": in_session,
        "jit": lambda: tf.function(reduce, jit_compile=True)("in/jit"),
    }
    if not kr.xla_built():
        del places["jit"]
    found = {}
    for place, function in places.items():
        try:
            function()
        except tf.errors.OpError as error:
            found[place] = str(error)
    return found


def not_ours():
    """An error that has nothing to do with collectives."""
    kr.init()

    @tf.function
    def lookup(index):
        return tf.gather(tf.ones([10]), index)

    try:
        lookup(tf.constant([99]))
    except tf.errors.InvalidArgumentError as error:
        return str(error)


def different_names():
    """The ranks come one after the other, as always."""
    kr.init()
    kr.barrier()
    time.sleep(0.1 * kr.rank())
    error = _error(lambda: kr.allreduce(tf.ones([4]), name=f"mine/{kr.rank()}"))
    assert kr.allreduce(tf.ones([]), kr.Sum, name="ok").numpy() == kr.size()
    return error


def different_steps():
    """Rank 1 comes to the end of its steps sooner."""
    kr.init()

    def train():
        for _ in range(2 if kr.rank() == 1 else 3):
            kr.allreduce(tf.ones([4]), name="grad")
        kr.allreduce(tf.ones([]), name="val_loss")

    return _error(train)


def without_threads():
    """Tries to start where the system has no thread, then where it has."""
    libc = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(256)

    def set_stack(size):
        """For threads that ask for none: all of C++, and Python's if 0."""
        assert libc.pthread_getattr_default_np(attributes) == 0
        wanted = ctypes.c_size_t(size)
        assert libc.pthread_attr_setstacksize(attributes, wanted) == 0
        assert libc.pthread_setattr_default_np(attributes) == 0

    errors = []
    for python_stack in (0, 1 << 20):
        threading.stack_size(python_stack)
        set_stack(1 << 50)
        try:
            kr.init()
        except kr.errors.StartError as error:
            errors.append(str(error))
        finally:
            set_stack(8 << 20)
    kr.init()
    assert kr.allreduce(1.0, kr.Sum).numpy() == kr.size()
    return errors


def stall_shutdown():
    kr.init()
    kr.allreduce(tf.ones([4]), name="step")
    if kr.rank() == 0:
        time.sleep(6)  # busy, in no collective
        kr.broadcast(1, 0, name="meet")
    else:
        error = _error(lambda: kr.allreduce(tf.ones([4]), name="lonely"))
        kr.broadcast(1, 0, name="meet")
        return error


def name_in_flight():
    """The same name twice at once on one rank, from two threads."""
    kr.init()
    ones = tf.ones([4])
    if kr.rank() == 0:
        ended = queue.Queue()

        def reduce():
            try:
                kr.allreduce(ones, name="w")
                ended.put(None)
            except tf.errors.OpError as error:
                ended.put((type(error).__name__, str(error)))

        threads = [threading.Thread(target=reduce) for _ in range(2)]
        for thread in threads:
            thread.start()
        # The one that came second; the other waits for rank 1.
        error = ended.get(timeout=30)
        kr.broadcast(1, 0, name="go")
        for thread in threads:
            thread.join()
        assert ended.get_nowait() is None
    else:
        kr.broadcast(1, 0, name="go")
        error = kr.allreduce(ones, name="w").numpy().shape
    kr.barrier()
    return error


def before_init():
    try:
        kr.rank()
    except ValueError as error:
        first = type(error).__name__
    return first, _error(lambda: kr.allreduce(tf.ones([4]), name="w"))


def init_again():
    """Jobs one after the other in the same processes."""
    totals = []
    for _ in range(5):
        kr.init()
        kr.init()
        totals.append(float(kr.allreduce(1.0, kr.Sum, name="x")))
        kr.shutdown()
        kr.shutdown()
        assert not kr.is_initialized()
    return totals


def leaves_early():
    kr.init()
    kr.barrier()
    if kr.rank() == 1:
        return "left"
    return _error(lambda: [kr.allreduce(1.0, name="x") for _ in range(100)])


def raises():
    kr.init()
    kr.barrier()
    if kr.rank() == 1:
        raise RuntimeError("the disk is full")
    kr.allreduce(tf.ones([4]), name="w")


def different_settings():
    import os

    if os.environ["KERAS_RING_RANK"] == "2":
        os.environ["KERAS_RING_CYCLE_TIME"] = "3"
    kr.init()
