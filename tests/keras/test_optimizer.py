"""What `DistributedOptimizer` does to an optimizer, on a ring of equal ranks.

Tests with ranks that differ are in `test_training_on_ranks.py`.
"""

import copy
import pickle
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ring.core import reduce_ops
from keras_ring.keras.checkpoint.model_loading import load_model
from keras_ring.keras.optimizer import reduction
from keras_ring.keras.optimizer.mixin import distributed_settings
from keras_ring.keras.optimizer.optimizer import (
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from keras_ring.tensorflow import reductions
from keras_ring.tensorflow.compression import Compression
from tests.tiers import few

ALL_OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "Adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "Adamax": lambda: keras.optimizers.Adamax(0.01),
    "Nadam": lambda: keras.optimizers.Nadam(0.01),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "Lion": lambda: keras.optimizers.Lion(0.01),
    "Lamb": lambda: keras.optimizers.Lamb(0.01),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "Muon": lambda: keras.optimizers.Muon(0.01),
    "ScheduleFreeAdamW": lambda: keras.optimizers.ScheduleFreeAdamW(0.01),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.05, momentum=0.9), initial_scale=16.0
    ),
    "MultiOptimizer": lambda: keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(
            keras.optimizers.SGD(0.05),
            {".*bias": keras.optimizers.Adam(0.01)},
        )
    ),
}


def make_data(num=32):
    rng = np.random.default_rng(3)
    return (
        rng.normal(size=(num, 5)).astype("float32"),
        rng.normal(size=(num, 3)).astype("float32"),
    )


def make_model(**compile_arguments):
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(4, activation="relu", name="one"),
            keras.layers.Dense(3, name="two"),
        ],
        name="model",
    )
    if compile_arguments:
        compile_arguments.setdefault("loss", keras.losses.MeanSquaredError())
        model.compile(**compile_arguments)
    return model


def fit(optimizer, epochs=2, batch_size=8, **compile_arguments):
    model = make_model(optimizer=optimizer, **compile_arguments)
    x, y = make_data()
    model.fit(
        x, y, epochs=epochs, batch_size=batch_size, shuffle=False, verbose=0
    )
    return model


def assert_same_state(first, second):
    def state(model):
        return [*model.weights, *model.optimizer.variables]

    for a, b in zip(state(first), state(second), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_the_list_of_optimizers_is_complete():
    shipped = {
        name
        for name in dir(keras.optimizers)
        if isinstance(getattr(keras.optimizers, name), type)
        and issubclass(getattr(keras.optimizers, name), keras.Optimizer)
    }
    assert shipped - {"Optimizer"} == set(ALL_OPTIMIZERS)


@pytest.mark.parametrize("name", few(ALL_OPTIMIZERS, "parity", keep=5))
def test_every_optimizer_trains_as_its_plain_self(ring, name):
    distributed = fit(DistributedOptimizer(ALL_OPTIMIZERS[name]()))
    assert set(ring.names()) == {
        f"gradient/model/{variable}"
        for variable in ("one/kernel", "one/bias", "two/kernel", "two/bias")
    }
    ring.size = 1
    assert_same_state(distributed, fit(ALL_OPTIMIZERS[name]()))


@pytest.mark.parametrize("name", ALL_OPTIMIZERS)
def test_every_optimizer_is_still_what_it_was(name):
    optimizer = ALL_OPTIMIZERS[name]()
    plain_class = type(optimizer)
    assert DistributedOptimizer(optimizer) is optimizer
    assert isinstance(optimizer, plain_class)
    assert type(optimizer).__name__ == plain_class.__name__
    assert distributed_settings(optimizer) is not None


@pytest.mark.parametrize("name", few(ALL_OPTIMIZERS, "parity", keep=5))
def test_one_rank_adds_nothing(ring, name):
    ring.size = 1
    optimizer = DistributedOptimizer(ALL_OPTIMIZERS[name]())
    fit(optimizer, epochs=1, run_eagerly=True)
    assert ring.calls == []


def test_state_of_a_trained_optimizer_is_kept(ring):
    ring.size = 1
    plain = fit(keras.optimizers.Adam(0.01), epochs=4)
    started = fit(keras.optimizers.Adam(0.01), epochs=2)
    variables = started.optimizer.variables
    ring.size = 2
    DistributedOptimizer(started.optimizer)
    assert all(
        a is b
        for a, b in zip(variables, started.optimizer.variables, strict=True)
    )
    started.make_train_function(force=True)
    x, y = make_data()
    started.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0)
    assert ring.calls
    assert_same_state(started, plain)


def test_schedules_are_kept(ring):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    distributed = fit(DistributedOptimizer(keras.optimizers.SGD(schedule)))
    ring.size = 1
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    assert_same_state(distributed, fit(keras.optimizers.SGD(schedule)))


@pytest.mark.parametrize(
    "copied",
    [
        lambda o: type(o).from_config(o.get_config()),
        lambda o: o.__class__.from_config(o.get_config()),
        lambda o: pickle.loads(pickle.dumps(o)),
        copy.deepcopy,
    ],
    ids=["type", "class", "pickle", "deepcopy"],
)
@pytest.mark.parametrize("name", ["Adam", "LossScaleOptimizer"])
def test_copies_reduce_alike(ring, name, copied):
    optimizer = DistributedOptimizer(
        ALL_OPTIMIZERS[name](),
        reduce_ops.Sum,
        compression=Compression.bf16,
        groups=2,
    )
    duplicate = copied(optimizer)
    assert duplicate is not optimizer
    assert distributed_settings(duplicate) == distributed_settings(optimizer)
    assert duplicate.get_config() == optimizer.get_config()
    fit(duplicate, epochs=1)
    assert {c.op for c in ring.calls} == {reduce_ops.Sum}


@pytest.mark.parametrize(
    "around", [lambda o: o, keras.optimizers.LossScaleOptimizer]
)
def test_wrapping_again_keeps_the_settings(around):
    optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1), reduce_ops.Sum)
    outer = around(optimizer)
    assert DistributedOptimizer(outer, reduce_ops.Sum) is outer
    with pytest.raises(
        ValueError, match=r"already, with op=.*Sum.*Received"
    ) as e:
        DistributedOptimizer(outer, groups=2)
    assert "groups=2" in str(e.value)
    assert distributed_settings(outer).op is reduce_ops.Sum
    assert type(optimizer).__mro__.count(keras.optimizers.SGD) == 1


def test_a_name_will_do():
    optimizer = DistributedOptimizer("adam")
    assert isinstance(optimizer, keras.optimizers.Adam)


@keras.saving.register_keras_serializable("test_optimizer")
class Registered(keras.optimizers.SGD):
    """An optimizer of a user, registered as Keras wants it."""


@pytest.mark.parametrize(
    "make", few([Registered, *ALL_OPTIMIZERS.values()], "parity", keep=5)
)
def test_a_saved_model_is_that_of_the_plain_optimizer(ring, tmp_path, make):
    model = fit(DistributedOptimizer(make()), epochs=1, run_eagerly=True)
    path = tmp_path / "model.keras"
    model.save(path)
    plain = keras.saving.load_model(path)
    assert type(plain.optimizer) is type(make())
    assert distributed_settings(plain.optimizer) is None
    assert_same_state(plain, model)
    again = load_model(path, op=reduce_ops.Sum)
    assert distributed_settings(again.optimizer).op is reduce_ops.Sum
    assert_same_state(again, model)


@pytest.mark.parametrize("make", [ALL_OPTIMIZERS["Adam"], Registered])
def test_an_hdf5_file_is_that_of_the_plain_optimizer(ring, tmp_path, make):
    fit(DistributedOptimizer(make())).save(tmp_path / "distributed.h5")
    ring.size = 1
    fit(make()).save(tmp_path / "plain.h5")
    distributed = keras.saving.load_model(tmp_path / "distributed.h5")
    plain = keras.saving.load_model(tmp_path / "plain.h5")
    assert type(distributed.optimizer) is type(plain.optimizer)
    assert_same_state(distributed, plain)


def test_a_saved_model_loads_where_keras_ring_is_not(ring, tmp_path):
    model = fit(DistributedOptimizer(keras.optimizers.Adam(0.01)), epochs=2)
    path = tmp_path / "model.keras"
    model.save(path)
    x, y = make_data()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    script = textwrap.dedent(
        """
        import sys
        # Whatever is installed: an import of it fails.
        sys.modules["keras_ring"] = None
        import keras, numpy as np
        folder = sys.argv[1]
        model = keras.saving.load_model(folder + "/model.keras")
        data = np.load(folder + "/data.npz")
        np.save(folder + "/before.npy", model.predict(data["x"], verbose=0))
        model.fit(data["x"], data["y"], epochs=2, batch_size=8,
                  shuffle=False, verbose=0)
        np.savez(folder + "/after.npz", *[v.numpy() for v in model.weights],
                 *[v.numpy() for v in model.optimizer.variables])
        """
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "before.npy"), model.predict(x, verbose=0)
    )
    ring.size = 1
    model.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0)
    after = np.load(tmp_path / "after.npz")
    expected = [*model.weights, *model.optimizer.variables]
    for key, variable in zip(after.files, expected, strict=True):
        np.testing.assert_array_equal(after[key], variable.numpy())


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize(
    "settings",
    [
        {"clipnorm": 0.1},
        {"global_clipnorm": 0.1},
        {"clipvalue": 0.01},
        {"weight_decay": 0.1},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
        # All of the 8 steps are used: what is left over is not reduced.
        {"gradient_accumulation_steps": 4},
        {"loss_scale_factor": 8.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_keras_come_after_the_reduction(ring, name, settings):
    optimizer_class = getattr(keras.optimizers, name)
    distributed = fit(
        DistributedOptimizer(optimizer_class(0.05, **settings), reduce_ops.Sum)
    )
    assert ring.calls
    ring.size = 1

    # What a sum over two equal ranks means for plain Keras.
    class Doubled(optimizer_class):
        def apply(self, grads, trainable_variables=None):
            return super().apply([2 * g for g in grads], trainable_variables)

    assert_same_state(distributed, fit(Doubled(0.05, **settings)))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_accumulated_gradients_are_reduced_when_they_are_used(ring, policy):
    keras.config.set_dtype_policy(policy)
    optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=4)
    # 8 steps in an epoch. Eager, so that each call is one of run time.
    fit(
        DistributedOptimizer(optimizer),
        epochs=1,
        batch_size=4,
        run_eagerly=True,
    )
    gradients = [c for c in ring.calls if c.name.startswith("gradient/")]
    assert [c.count for c in gradients] == [4, 4]
    rest = [c for c in ring.calls if c not in gradients]
    if policy == "mixed_float16":
        assert [(c.name, c.op) for c in rest] == 8 * [
            ("finite/model/one/kernel", reduce_ops.Min)
        ]
    else:
        assert rest == []


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_under_a_loss_scale_each_gradient_is_reduced_once(
    ring, explicit, run_eagerly
):
    keras.config.set_dtype_policy("mixed_float16")
    inner = keras.optimizers.SGD(0.05)
    optimizer = (
        keras.optimizers.LossScaleOptimizer(inner) if explicit else inner
    )
    model = fit(
        DistributedOptimizer(optimizer), epochs=1, run_eagerly=run_eagerly
    )
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert int(model.optimizer.iterations) == 4
    if run_eagerly:
        assert [c.count for c in ring.calls] == 4 * [4]
    else:
        # Keras traces a step twice, the first time to make variables.
        assert sorted(ring.names()) == sorted(2 * list(set(ring.names())))


def test_the_reduction_is_outside_of_the_test_for_overflow(ring):
    """The place matters: inside, a rank that skips leaves the others alone."""
    keras.config.set_dtype_policy("mixed_float16")
    x, y = make_data()
    model = make_model(
        optimizer=DistributedOptimizer(keras.optimizers.SGD(0.05)),
        run_eagerly=True,
    )
    before = model.get_weights()
    model.fit(x * np.inf, y, epochs=1, batch_size=8, verbose=0)
    assert [c.count for c in ring.calls] == 4 * [4]
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.dynamic_scale) == 2.0**15 / 2**4
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_names_are_the_same_with_and_without_accumulation(ring):
    fit(
        DistributedOptimizer(
            keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
        ),
        epochs=1,
    )
    assert set(ring.names()) == {
        f"gradient/model/{variable}"
        for variable in ("one/kernel", "one/bias", "two/kernel", "two/bias")
    }


def test_overflow_of_another_rank_skips_an_accumulating_step(ring, monkeypatch):
    keras.config.set_dtype_policy("mixed_float16")

    def allreduce(tensor, op=reduce_ops.Average, *, name=None, **options):
        del options
        if op is reduce_ops.Min:  # The other rank has an overflow.
            return tf.zeros_like(tensor)
        return tensor

    monkeypatch.setattr(reductions, "allreduce", allreduce)
    optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    model = fit(DistributedOptimizer(optimizer), epochs=1)
    assert int(optimizer._iterations) == 0
    assert float(model.optimizer.dynamic_scale) == 2.0**15 / 2**4


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_steps_per_execution(ring, steps_per_execution):
    distributed = fit(
        DistributedOptimizer(keras.optimizers.Adam(0.01)),
        steps_per_execution=steps_per_execution,
    )
    assert len(set(ring.names())) == 4
    ring.size = 1
    assert_same_state(distributed, fit(keras.optimizers.Adam(0.01)))


@pytest.mark.parametrize("method", ["apply", "apply_gradients"])
@pytest.mark.parametrize("compiled", [False, True])
def test_loops_of_a_user(ring, method, compiled):
    def train(optimizer):
        model = make_model()
        x, y = make_data()

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            if method == "apply":
                optimizer.apply(gradients, weights)
            else:
                optimizer.apply_gradients(zip(gradients, weights, strict=True))

        if compiled:
            step = tf.function(step)
        for _ in range(3):
            step()
        return model.get_weights()

    distributed = train(DistributedOptimizer(keras.optimizers.Adam(0.01)))
    assert ring.calls
    ring.size = 1
    plain = train(keras.optimizers.Adam(0.01))
    for a, b in zip(distributed, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_apply_without_variables(ring):
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1.0), reduce_ops.Sum)
    variable = keras.Variable(np.zeros(2, "float32"), name="v")
    optimizer.build([variable])
    optimizer.apply([tf.ones(2)])
    np.testing.assert_array_equal(variable.numpy(), [-2.0, -2.0])
    with pytest.raises(ValueError, match="must match"):
        optimizer.apply([tf.ones(2), tf.ones(2)])
    optimizer.apply([])


def test_missing_gradients_and_frozen_layers(ring):
    model = make_model()
    model.get_layer("one").trainable = False
    optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.MeanSquaredError())
    x, y = make_data()
    model.fit(x, y, verbose=0)
    assert set(ring.names()) == {
        "gradient/model/two/kernel",
        "gradient/model/two/bias",
    }
    ring.calls.clear()
    used = keras.Variable(1.0, name="used")
    unused = keras.Variable(1.0, name="unused")
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1.0))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([None, tf.constant(0.5)], [unused, used])
    assert ring.names() == ["gradient/used"]
    assert float(used) == 0.5
    assert float(unused) == 1.0


def test_variables_of_tensorflow(ring):
    variable = tf.Variable([1.0, 2.0], name="plain")
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply([tf.ones(2)], [variable])
    assert ring.names() == ["gradient/plain"]
    np.testing.assert_array_equal(variable.numpy(), [0.0, 1.0])


def test_names_of_one_path_in_one_graph_differ(ring):
    """Two models built alike may have both reductions in flight at once."""
    models = [make_model(), make_model()]
    optimizers = [
        DistributedOptimizer(keras.optimizers.SGD(0.1)) for _ in models
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean(model(x) ** 2) for model in models]
        for i in range(2):
            weights = models[i].trainable_variables
            optimizers[i].apply(tape.gradient(losses[i], weights), weights)

    step(tf.ones((2, 5)))
    names = ring.names()
    assert len(names) == len(set(names)) == 8
    assert {name for name in names if name.endswith("#1")} == {
        f"{name}#1" for name in names[:4]
    }
    # Traced again, as Keras does for a last batch that is smaller: a rank
    # which does and one which does not must still agree on the names.
    step(tf.ones((3, 5)))
    assert ring.names() == 2 * names


def test_names_within_a_call_differ(ring):
    variables = [keras.Variable(0.0, name="same") for _ in range(3)]
    optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1), groups=3)
    optimizer.apply([tf.constant(1.0)] * 3, variables)
    assert ring.names() == [
        "gradient/same",
        "gradient/same#1",
        "gradient/same#2",
    ]


def test_groups(ring):
    def counts(groups, compiled=True):
        ring.calls.clear()
        variables = [keras.Variable(0.0, name=f"v{i}") for i in range(5)]
        if callable(groups):
            groups = groups(variables)
        optimizer = DistributedOptimizer(
            keras.optimizers.SGD(0.1), groups=groups
        )
        optimizer.build(variables)

        def step():
            optimizer.apply([tf.constant(1.0)] * 5, variables)

        (tf.function(step) if compiled else step)()
        return [(c.name.removeprefix("gradient/"), c.count) for c in ring.calls]

    assert counts(2) == [("v0+1", 2), ("v2+2", 3)]
    assert counts(1) == [("v0+4", 5)]
    assert counts(9) == [(f"v{i}", 1) for i in range(5)]
    assert counts(None) == [(f"v{i}", 1) for i in range(5)]
    assert counts(None, compiled=False) == [("v0+4", 5)]

    def some(variables):
        return [[variables[3], variables[1]], [variables[0]]]

    assert counts(some) == [("v1+1", 2), ("v0", 1), ("v2", 1), ("v4", 1)]


def test_small_gradients_of_many_share_ops(ring, monkeypatch):
    monkeypatch.setattr(reduction, "_MANY", 64)
    elements = [1] * 40 + [100_000] + [4_000] * 23

    def calls(elements, without=(), **settings):
        ring.calls.clear()
        variables = [
            keras.Variable(np.zeros(n, "float32"), name=f"v{i}")
            for i, n in enumerate(elements)
        ]
        optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1), **settings)

        @tf.function
        def step():
            reduction.reduce_gradients(
                [
                    None if i in without else tf.ones_like(v)
                    for i, v in enumerate(variables)
                ],
                variables,
                distributed_settings(optimizer),
            )

        step()
        return [(c.name.removeprefix("gradient/"), c.count) for c in ring.calls]

    assert len(calls(elements[:63])) == 63
    assert len(calls(elements, op=reduce_ops.Adasum)) == 64
    assert len(calls(elements, groups=64)) == 64
    many = calls(elements)
    assert many == [("v0+31", 32), ("v32+30", 31), ("v40", 1)]
    # What a rank has no gradient of changes the one part that would hold it.
    less = calls(elements, without=[3])
    assert less == [("v0+30", 31), *many[1:]]

    # 1 MiB holds 16 of 64,000 bytes, 4 of 256 KiB.
    large = calls([16_000] * 64)
    assert {count for _, count in large} == {16}
    assert large[1] == ("v16+15", 16)
    largest = calls([1 << 16] * 64)
    assert largest == [(f"v{i}+3", 4) for i in range(0, 64, 4)]
    assert len(calls([(1 << 16) + 1] * 64)) == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"op": "average"}, "`op` must be"),
        ({"compression": "fp16"}, "`compression` must be"),
        ({"gradient_predivide_factor": 0.0}, "above 0"),
        (
            {"gradient_predivide_factor": 2.0, "op": reduce_ops.Sum},
            "needs `op=kr.Average`",
        ),
        ({"groups": 0}, "positive number"),
        ({"groups": [[]]}, "non-empty"),
        ({"groups": "kernel"}, "positive number"),
        ({"groups": True}, "positive number"),
        ({"groups": [[3]]}, "must hold variables"),
    ],
)
def test_arguments_without_meaning(arguments, message):
    optimizer = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match=message):
        DistributedOptimizer(optimizer, **arguments)
    assert distributed_settings(optimizer) is None


def test_a_variable_in_two_groups():
    variable = keras.Variable(0.0, name="v")
    with pytest.raises(ValueError, match="more than once"):
        DistributedOptimizer("sgd", groups=[[variable], [variable]])


def test_predivision_and_compression_reach_the_reduction(ring):
    variable = keras.Variable(0.0, name="v")
    optimizer = DistributedOptimizer(
        keras.optimizers.SGD(0.1),
        compression=Compression.fp16,
        gradient_predivide_factor=4.0,
    )
    optimizer.apply([tf.constant(1.0)], [variable])
    (call,) = ring.calls
    assert call.options == {
        "prescale_factor": 0.25,
        "postscale_factor": 4.0,
        "compression": Compression.fp16,
    }


def embedding_slices():
    return tf.IndexedSlices(
        tf.constant([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]),
        tf.constant([1, 3, 1]),
        tf.constant([4, 2]),
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize(
    ("op", "factor"), [(reduce_ops.Average, 1.0), (reduce_ops.Sum, 2.0)]
)
def test_sparse_gradients(ring, op, factor, sparse_as_dense, compiled):
    variable = keras.Variable(np.zeros((4, 2), "float32"), name="table")
    optimizer = DistributedOptimizer(
        # Squares of duplicates would not be the square of their sum.
        keras.optimizers.Adagrad(1.0, initial_accumulator_value=0.0),
        op,
        sparse_as_dense=sparse_as_dense,
    )
    optimizer.build([variable])

    def step():
        optimizer.apply([embedding_slices()], [variable])

    (tf.function(step) if compiled else step)()
    expected = factor * np.array([0.0, 5.0, 0.0, 2.0])
    (accumulator,) = optimizer.variables[2:]
    np.testing.assert_allclose(
        accumulator.numpy()[:, 0], expected**2, rtol=1e-6
    )
    if sparse_as_dense:
        assert ring.names() == ["gradient/table"]
    else:
        # Values, indices, and how many ranks have some.
        (call,) = ring.calls
        assert (call.kind, call.name, call.count) == (
            "grouped_allgather",
            "gradient/table",
            3,
        )


def test_sparse_gradients_of_other_reductions(ring):
    variable = keras.Variable(np.zeros((4, 2), "float32"), name="table")
    optimizer = DistributedOptimizer("sgd", reduce_ops.Max)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.apply([embedding_slices()], [variable])
    optimizer = DistributedOptimizer(
        "sgd", reduce_ops.Max, sparse_as_dense=True
    )
    optimizer.apply([embedding_slices()], [variable])


def test_values_in_place_of_gradients_are_combined_by_maximum(ring):
    scale = keras.Variable(0.0, name="scale")
    scale.overwrite_with_gradient = True
    weight = keras.Variable(0.0, name="weight")
    optimizer = DistributedOptimizer(keras.optimizers.SGD(1.0), reduce_ops.Sum)
    optimizer.apply([tf.constant(3.0), tf.constant(1.0)], [scale, weight])
    assert {c.name: c.op for c in ring.calls} == {
        "gradient/scale": reduce_ops.Max,
        "gradient/weight": reduce_ops.Sum,
    }
    assert float(scale) == 3.0
    assert float(weight) == -2.0


def test_values_in_place_of_gradients_while_gradients_accumulate(ring):
    scale = keras.Variable(0.0, name="scale")
    scale.overwrite_with_gradient = True
    weight = keras.Variable(0.0, name="weight")
    optimizer = DistributedOptimizer(
        keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), reduce_ops.Sum
    )
    for value in (3.0, 2.0):
        optimizer.apply([tf.constant(value), tf.constant(1.0)], [scale, weight])
    assert [(c.name, c.op) for c in ring.calls] == [
        ("gradient/scale", reduce_ops.Max),
        ("gradient/scale", reduce_ops.Max),
        ("gradient/weight", reduce_ops.Sum),
    ]
    assert float(scale) == 3.0
    assert float(weight) == -2.0


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("wrapped", [False, True])
def test_backward_passes(ring, average, wrapped):
    """The same as Keras' own, but for the sum instead of the average."""

    def make():
        optimizer = keras.optimizers.SGD(0.05)
        if wrapped:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        return optimizer

    distributed = fit(
        DistributedOptimizer(
            make(),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        ),
        run_eagerly=True,
    )
    reduced = [name for name in ring.names() if name.startswith("gradient/")]
    # Of 8 steps, 4 update; eager execution reduces all gradients as one.
    assert len(reduced) == 4
    ring.size = 1
    plain = make()
    inner = plain.inner_optimizer if wrapped else plain
    inner.gradient_accumulation_steps = 2
    if not average:
        inner.learning_rate = 0.1
    for a, b in zip(
        distributed.weights, fit(plain, run_eagerly=True).weights, strict=True
    ):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_backward_passes_on_one_rank(ring):
    """They are summed there, too."""
    ring.size = 1
    model = fit(
        DistributedOptimizer(
            keras.optimizers.SGD(0.05), backward_passes_per_step=2
        )
    )
    plain = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for a, b in zip(model.weights, fit(plain).weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3), "3"),
        (ALL_OPTIMIZERS["MultiOptimizer"], "in it"),
        (lambda: fit(keras.optimizers.SGD(0.1)).optimizer, "has been used"),
    ],
)
def test_backward_passes_that_make_no_sense(ring, optimizer, message):
    ring.size = 1
    with pytest.raises(ValueError, match=message):
        DistributedOptimizer(optimizer(), backward_passes_per_step=2)


@pytest.mark.parametrize("passes", [0, True, 1.5])
def test_backward_passes_must_be_a_number(passes):
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        DistributedOptimizer("sgd", backward_passes_per_step=passes)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("scaled", [True, False])
def test_gradients_of_local_variables_stay(ring, passes, scaled):
    optimizer = DistributedOptimizer(
        keras.optimizers.SGD(1.0),
        scale_local_gradients=scaled,
        backward_passes_per_step=passes,
    )
    shared, own = keras.Variable([0.0]), keras.Variable([0.0])
    optimizer.register_local_var(own)
    duplicate = pickle.loads(pickle.dumps(optimizer))
    for _ in range(passes):
        optimizer.apply([tf.constant([2.0])] * 2, [shared, own])
    assert float(shared[0]) == -2.0 * passes
    assert float(own[0]) == (-1.0 if scaled else -2.0) * passes
    assert all(own.path not in name for name in ring.names())
    # A copy knows it by its path.
    assert own in duplicate._local_variables
    assert shared not in duplicate._local_variables


def test_an_overflow_of_a_local_variable_is_agreed_on(ring):
    """It is seen by one rank only, and all have to skip the step."""
    optimizer = DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))
    )
    own = keras.Variable([0.0])
    optimizer.register_local_var(own)
    optimizer.apply([tf.constant([2.0])], [own])
    assert [name for name in ring.names() if name.startswith("finite/")]


def test_local_layers(ring):
    """Weights that they get later are local, too."""
    local = keras.layers.Dense(4)
    model = keras.Sequential([local, keras.layers.Dense(3)])
    model.compile(
        PartialDistributedOptimizer(keras.optimizers.SGD(0.1), [local]), "mse"
    )
    x, y = make_data()
    model.fit(x, y, batch_size=32, verbose=0)
    last = model.layers[1].trainable_variables
    assert set(ring.names()) == {f"gradient/{v.path}" for v in last}
