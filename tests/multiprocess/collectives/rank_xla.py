"""What single ranks do in test_xla.py."""

import numpy as np
import tensorflow as tf

import keras_ring as kr


def compiled(function):
    return tf.function(function, jit_compile=True)


def opposite_orders(elements):
    """Two tensors, the first of each rank being the other one's second.

    The second takes longer to make. If a rank waited for its first before it
    had started its second, it would wait for the other rank, and that one for
    it.
    """
    kr.init()
    names = ["a", "b"] if kr.rank() == 0 else ["b", "a"]

    @compiled
    def step(x):
        local = x
        results = []
        for name in names:
            total = kr.allreduce(local, kr.Sum, name=name)
            results.append(tf.reduce_sum(total * local))
            for _ in range(5):
                local = tf.linalg.matmul(local, x)
        return tf.add_n(results)

    x = tf.eye(elements)
    for _ in range(20):
        assert step(x).numpy() == 2 * 2 * elements


def opposite_chains():
    """Two chains of three, made in opposite orders."""
    kr.init()
    names = ["a", "b"] if kr.rank() == 0 else ["b", "a"]

    @compiled
    def step(x):
        results = []
        for name in names:
            local = x
            for i in range(3):
                local = kr.allreduce(local, kr.Sum, name=f"{name}{i}")
            results.append(local)
        return tf.add_n(results)

    for _ in range(20):
        assert step(tf.ones([])).numpy() == 2 * 2**3


def orders_with_variables():
    """The same, with variables written and read in between."""
    kr.init()
    names = ["a", "b"] if kr.rank() == 0 else ["b", "a"]
    variables = {name: tf.Variable(tf.zeros([4])) for name in names}

    @compiled
    def step(x):
        for name in names:
            variables[name].assign_add(kr.allreduce(x, kr.Sum, name=name))
        # Needs all of the above, which only the variables say.
        total = variables["a"] + variables["b"]
        return kr.allreduce(total, kr.Sum, name="total")

    return [step(tf.ones([4])).numpy().tolist() for _ in range(3)]


def chained_on_one_rank():
    """Rank 1's `a` needs its `b`; rank 0's are free."""
    kr.init()

    @compiled
    def step(x):
        if kr.rank() == 1:
            b = kr.allreduce(x, kr.Sum, name="b")
            a = kr.allreduce(x + 0.0 * b, kr.Sum, name="a")
        else:
            a = kr.allreduce(x, kr.Sum, name="a")
            b = kr.allreduce(x, kr.Sum, name="b")
        return a, b

    for _ in range(20):
        for result in step(tf.constant([1.0, 2.0])):
            np.testing.assert_array_equal(result, [2.0, 4.0])


def executions():
    """How often collectives run that XLA would like to optimise."""
    kr.init()
    x = tf.constant([1.0])

    def constant(x):
        return kr.allreduce(tf.constant([1.0]), kr.Sum, name="constant")

    def twins(x):
        return [
            kr.allreduce(x, kr.Sum, name="twin"),
            kr.allreduce(x, kr.Sum, name="other twin"),
        ]

    def unused(x):
        kr.allreduce(x, kr.Sum, name="unused")
        return x

    def loop(x):
        for _ in tf.range(5):
            x = kr.allreduce(x, kr.Sum, name="loop")
        return x

    def loop_of_constants(x):
        total = tf.constant(0.0)
        for _ in tf.range(5):
            total += kr.allreduce(tf.constant(1.0), kr.Sum, name="free")
        return total

    def open_loop(x):
        while tf.reduce_sum(x) < 100.0:
            x = kr.allreduce(x, kr.Sum, name="open")
        return x

    def branch(x):
        if tf.reduce_sum(x) > 0.0:
            return kr.allreduce(x, kr.Sum, name="taken")
        return kr.allreduce(x, kr.Sum, name="not taken")

    def nested(x):
        @tf.function
        def inner(x, name):
            return kr.allreduce(x, kr.Sum, name=name)

        return inner(x, "inner 1") + inner(x, "inner 2")

    counts = {}
    for function in (
        constant,
        twins,
        unused,
        loop,
        loop_of_constants,
        open_loop,
        branch,
        nested,
    ):
        step = compiled(function)
        kr.barrier(name=f"before.{function.__name__}")
        before = kr.metrics()["entries"]
        step(x)
        step(x)
        kr.barrier(name=f"after.{function.__name__}")
        # One of the two barriers is counted.
        counts[function.__name__] = kr.metrics()["entries"] - before - 1
    assert compiled(loop)(x).numpy()[0] == kr.size() ** 5
    assert compiled(loop_of_constants)(x).numpy() == 5 * kr.size()
    return counts


def gradient_of_a_compiled_function():
    """The tape is outside of the function, and again inside of another."""
    kr.init()
    x = tf.constant([1.0, 2.0]) * (kr.rank() + 1)

    @compiled
    def cube(x):
        return kr.allreduce(x, kr.Sum, name="x") ** 3

    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = cube(x)
        first = tape.gradient(y, x)
    return first.numpy().tolist(), outer.gradient(first, x).numpy().tolist()


def _message(error):
    return type(error).__name__, str(error)


def errors():
    """What is wrong, as the other ways of running say it."""
    kr.init()
    odd = kr.rank() == 1
    x = tf.ones([4])
    cases = {
        "shape": lambda: kr.allreduce(tf.ones([5 if odd else 4]), name="e1"),
        "op": lambda: kr.allreduce(x, kr.Sum if odd else kr.Average, name="e2"),
        "kind": lambda: (
            kr.broadcast(x, 0, name="e3") if odd else kr.allreduce(x, name="e3")
        ),
        "scale": lambda: kr.allreduce(
            x, name="e4", prescale_factor=2.0 if odd else 1.0
        ),
        "root": lambda: kr.broadcast(x, 99, name="e5"),
        "two": lambda: [
            kr.allreduce(tf.ones([5 if odd else 4]), name="e6"),
            kr.allreduce(x, name="e7"),
        ],
        "name": lambda: kr.allreduce(x, name=""),
        "allgather": lambda: kr.allgather(x, name="e8"),
        "barrier": lambda: kr.barrier(name="e9"),
    }
    messages = {}
    for name, function in cases.items():
        try:
            compiled(function)()
        except (tf.errors.OpError, NotImplementedError) as error:
            messages[name] = _message(error)
        # The job goes on, and so do the names.
        kr.barrier(name="next")
        fine = compiled(lambda: kr.allreduce(tf.ones([]), kr.Sum, name="e1"))
        assert fine().numpy() == kr.size()
    return messages


def odd_names():
    """Names are texts of a program's text there."""
    kr.init()
    names = ['quo"te', "back\\slash", "новый", "new\nline", "a" * 4096, "{}="]
    step = compiled(lambda x: [kr.allreduce(x, kr.Sum, name=n) for n in names])
    for result in step(tf.ones([])):
        assert result.numpy() == kr.size()
    # The names are the same ones as without XLA.
    for name in names:
        if kr.rank() == 0:
            result = kr.allreduce(tf.ones([]), kr.Sum, name=name)
        else:
            result = compiled(
                lambda name=name: kr.allreduce(tf.ones([]), kr.Sum, name=name)
            )()
        assert result.numpy() == kr.size()


def before_init():
    step = compiled(lambda x: kr.allreduce(x, name="w"))
    try:
        step(tf.ones([4]))
    except tf.errors.OpError as error:
        first = _message(error)
    kr.init()
    second = step(tf.ones([4])).numpy().tolist()
    kr.shutdown()
    try:
        step(tf.ones([4]))
    except tf.errors.OpError as error:
        return first, second, _message(error)


def no_way_out():
    """A loop on each rank holds up what the other one's loop waits for."""
    kr.init()
    mine, other = ("a", "b") if kr.rank() == 0 else ("b", "a")

    @compiled
    def step(x):
        for _ in tf.range(2):
            x = kr.allreduce(x, kr.Sum, name=mine)
        for _ in tf.range(2):
            x = kr.allreduce(x, kr.Sum, name=other)
        return x

    try:
        step(tf.ones([4]))
    except tf.errors.OpError as error:
        return _message(error)


def failed_again_and_again():
    """What was started beside the collective that failed comes free."""
    import psutil

    kr.init()
    odd = kr.rank() == 1

    @compiled
    def step(x):
        bad = kr.allreduce(tf.ones([5 if odd else 4]), name="bad")
        good = [kr.allreduce(x, name=f"good {i}") for i in range(2)]
        return bad, good

    sizes = []
    for _ in range(60):
        try:
            step(tf.ones([1 << 18]))
            raise AssertionError("no error")
        except tf.errors.FailedPreconditionError:
            pass
        kr.barrier(name="round")
        sizes.append(psutil.Process().memory_info().rss)
    return max(sizes[40:]) - min(sizes[20:40])


# --- Training ---


def _train(jit_compile, steps_per_execution=1, mixed=False, accumulate=None):
    import keras

    from tests.keras import rank_training as training

    training.start()
    if mixed:
        keras.config.set_dtype_policy("mixed_float16")
    x, y = kr.data.shard(training.make_data(64 * 12))
    model = training.make_classifier()
    optimizer = keras.optimizers.Adam(
        0.01, gradient_accumulation_steps=accumulate
    )
    model.compile(
        kr.DistributedOptimizer(optimizer),
        training.sparse_loss(),
        metrics=["accuracy"],
        jit_compile=jit_compile,
        steps_per_execution=steps_per_execution,
    )
    losses = model.fit(
        x,
        y,
        batch_size=64 // kr.size(),
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
        ],
    ).history["loss"]
    return {
        "losses": losses,
        "weights": model.get_weights(),
        "digest": training.state_digest(model),
    }


def trainings():
    """`fit` with and without XLA, in several ways."""
    results = {}
    for name, options in {
        "plain": {},
        "several steps": {"steps_per_execution": 4},
        "mixed": {"mixed": True},
        "accumulating": {"accumulate": 3},
    }.items():
        results[name] = [
            _train(jit_compile, **options) for jit_compile in (False, True)
        ]
    return results


def tapes():
    """A step of a user's own, with and without XLA; with an embedding."""
    import keras

    from tests.keras import rank_training as training

    results = []
    for jit_compile in (False, True):
        training.start()
        rng = np.random.default_rng(5)
        x = rng.integers(0, 50, size=(64, 6))
        y = rng.normal(size=(64, 1)).astype("float32")
        x, y = kr.data.shard((x, y))
        model = keras.Sequential(
            [
                keras.layers.Embedding(50, 8),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.build((None, 6))
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=jit_compile)
        def step(x, y, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            tape = kr.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return kr.allreduce(loss, name="loss")

        losses = [float(step(x, y)) for _ in range(10)]
        results.append(
            {
                "losses": losses,
                "weights": model.get_weights(),
                "digest": training.digest(model.variables),
            }
        )
    return results
