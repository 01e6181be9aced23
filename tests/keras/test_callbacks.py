"""Callbacks on a ring of equal ranks."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_ring as kr
from keras_ring.callbacks import (
    BackupAndRestore,
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    ModelCheckpoint,
)
from keras_ring.core import arrays, generations, reduce_ops
from keras_ring.core.rank_zero import Outcome
from keras_ring.errors import CheckpointError
from keras_ring.keras.agreement import fingerprints, time_budget
from keras_ring.keras.checkpoint import saved_files as files
from keras_ring.keras.checkpoint.model_loading import load_model
from keras_ring.keras.fit import skipped_batches, terminate_on_nan
from keras_ring.keras.lanes import compat
from keras_ring.keras.model import model_broadcast
from keras_ring.keras.optimizer.momentum_correction import MomentumCorrection
from keras_ring.keras.optimizer.optimizer import DistributedOptimizer
from keras_ring.protocol import cores
from keras_ring.tensorflow import gathers, reductions


def make_data(num=24):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(num, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


class Subclassed(keras.Model):
    """A model that has no weights before it sees data."""

    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5)
        self.dense = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.dense(self.dropout(x, training=training))


def make_model(kind, optimizer=None, **arguments):
    if kind == "built":
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
    elif kind == "unbuilt":
        model = keras.Sequential([keras.layers.Dense(1)])
    else:
        model = Subclassed()
    model.compile(
        optimizer or DistributedOptimizer(keras.optimizers.Adam(0.1)),
        keras.losses.MeanSquaredError(),
        metrics=["mae"],
        **arguments,
    )
    return model


class Watch(keras.callbacks.Callback):
    """Writes down what it sees at the start of each batch."""

    def __init__(self, look):
        super().__init__()
        self.look = look
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        del logs
        self.seen.append(self.look(self.model))


class TestBroadcast:
    @pytest.mark.parametrize("run_eagerly", [False, True])
    @pytest.mark.parametrize("kind", ["built", "unbuilt", "subclassed"])
    def test_everything_is_shared_before_the_first_step(
        self, ring, monkeypatch, kind, run_eagerly
    ):
        """Gives all variables the value 2 and looks at the first step."""
        shared = []

        def broadcast_group(tensors, root_rank, name, process_set):
            assert root_rank == 1
            shared.extend((name, i) for i in range(len(tensors)))
            return [tf.zeros_like(t) + tf.cast(2, t.dtype) for t in tensors]

        monkeypatch.setattr(gathers, "broadcast_group", broadcast_group)
        gradients = []

        def allreduce(tensor, op=reduce_ops.Average, *, name=None, **options):
            if name.startswith("gradient/"):
                gradients.append(len(shared))
            return ring.allreduce(tensor, op, name=name, **options)

        monkeypatch.setattr(reductions, "allreduce", allreduce)
        optimizer = DistributedOptimizer(keras.optimizers.Adam(0.1))
        model = make_model(kind, optimizer, run_eagerly=run_eagerly)
        x, y = make_data()
        model.fit(
            x,
            y,
            batch_size=24,
            verbose=0,
            callbacks=[BroadcastGlobalVariablesCallback(1)],
        )
        assert float(optimizer.learning_rate) == 2.0
        assert int(optimizer.iterations) == 2 + 1
        count = len(model.variables) + len(optimizer.variables)
        assert len(shared) >= count
        assert len(set(shared)) == len(shared)
        # None of it after the step was made.
        assert all(len(shared) == at for at in gradients)
        assert "train_step" not in vars(model)

    @pytest.mark.parametrize(
        "arguments",
        [{}, {"run_eagerly": True}, {"steps_per_execution": 2}],
        ids=str,
    )
    def test_the_first_batch_is_trained_on_with_shared_weights(
        self, ring, monkeypatch, arguments
    ):
        monkeypatch.setattr(
            gathers,
            "broadcast_group",
            lambda tensors, *_: [tf.zeros_like(each) for each in tensors],
        )
        optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1))
        model = make_model("unbuilt", optimizer, **arguments)
        x, y = make_data()
        # All variables become 0, the learning rate with them. So the loss is
        # that of a model of zeros.
        history = model.fit(
            x,
            y,
            batch_size=8,
            verbose=0,
            callbacks=[BroadcastGlobalVariablesCallback()],
        )
        np.testing.assert_allclose(
            history.history["loss"], [np.mean(y**2)], rtol=1e-5
        )

    def test_the_second_fit_is_as_the_first(self, ring):
        model = make_model("subclassed")
        x, y = make_data()
        counts = []
        for _ in range(2):
            ring.calls.clear()
            model.fit(
                x,
                y,
                verbose=0,
                callbacks=[BroadcastGlobalVariablesCallback()],
            )
            counts.append(
                sum(c.count for c in ring.calls if c.kind == "broadcast")
            )
        # The metrics have their state from the start of the second one.
        assert counts[0] == counts[1]

    def test_a_train_step_of_the_instance_survives(self, ring):
        model = make_model("subclassed")
        calls = []

        def train_step(data):
            calls.append(1)
            return type(model).train_step(model, data)

        model.train_step = train_step
        x, y = make_data()
        model.fit(
            x, y, verbose=0, callbacks=[BroadcastGlobalVariablesCallback()]
        )
        assert calls
        assert model.train_step is train_step
        assert ring.names("broadcast")

    def test_seeds_and_metrics_are_shared(self, ring, monkeypatch):
        """And the rank is in the seeds then."""
        ring.rank = 1
        assigned = []
        seeds = []

        share = model_broadcast.share

        def noted(variables, *args, **kwargs):
            assigned.extend(v.path for v in variables)
            seeds.extend(
                tuple(v.numpy()) for v in variables if "seed" in v.path
            )
            return share(variables, *args, **kwargs)

        monkeypatch.setattr(model_broadcast, "share", noted)
        model = make_model("built")
        x, y = make_data()
        look = Watch(lambda m: m.layers[0].seed_generator.state.numpy())
        model.fit(
            x,
            y,
            verbose=0,
            callbacks=[BroadcastGlobalVariablesCallback(), look],
        )
        # That of the layer, and that of `keras.random`.
        assert len(seeds) == 2
        assert look.seen[0].tolist() == [seeds[0][0] ^ 0x514E28B7, 1]
        assert any("seed_generator" in path for path in assigned)
        assert any("velocity" in path for path in assigned)
        assert any("iteration" in path for path in assigned)
        assert any(path.startswith("loss/") for path in assigned)

    def test_one_rank(self, ring):
        ring.size = 1
        x, y = make_data()
        make_model("subclassed").fit(
            x, y, verbose=0, callbacks=[BroadcastGlobalVariablesCallback()]
        )
        assert ring.calls == []


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


class TestConsistency:
    @pytest.mark.parametrize("seconds", [0.01, 1.0])
    def test_weights_are_compared_as_often_as_it_is_cheap(
        self, ring, monkeypatch, seconds
    ):
        clock = Clock()
        monkeypatch.setattr(time_budget, "time", clock)
        digests = fingerprints.digests

        def slow(weights):
            clock.now += seconds
            return digests(weights)

        monkeypatch.setattr(fingerprints, "digests", slow)
        callback = BroadcastGlobalVariablesCallback()
        callback.set_model(make_model("built"))
        callback.set_params({"steps": 1})
        callback.on_train_begin()
        compared = []
        for epoch in range(40):
            callback.on_epoch_begin(epoch)
            clock.now += 10.0
            before = clock.now
            callback.on_epoch_end(epoch)
            if clock.now > before:
                compared.append(epoch)
        if seconds == 0.01:
            assert compared == list(range(40))
        else:
            assert compared[:2] == [0, 1]
            assert np.all(np.diff(compared)[1:] >= 10)
            assert len(compared) >= 4
        before = clock.now
        callback.on_train_end()
        # The last weights are always compared.
        assert (clock.now > before) == (39 not in compared)

    def test_a_fingerprint_changes_with_each_byte(self, monkeypatch):
        monkeypatch.setattr(fingerprints, "_PIECE", 64)
        values = np.arange(100, dtype="float32")
        variable = keras.Variable(values)
        seen = {fingerprints.digest(variable)}
        assert seen == {fingerprints.digest(keras.Variable(values))}
        for index in range(100):
            changed = values.copy()
            changed[index] = np.nextafter(changed[index], np.float32(1000))
            variable.assign(changed)
            seen.add(fingerprints.digest(variable))
        assert len(seen) == 101

    def test_fingerprints_are_made_in_the_threads_that_a_rank_has(
        self, ring, monkeypatch
    ):
        monkeypatch.setattr(fingerprints, "_PIECE", 64)
        monkeypatch.setattr(fingerprints, "_THREADED", 64)
        pool = fingerprints.ThreadPoolExecutor
        made = []

        def counted(threads):
            made.append(threads)
            return pool(threads)

        monkeypatch.setattr(fingerprints, "ThreadPoolExecutor", counted)
        arrays = [np.arange(100.0), np.ones((3, 3))]
        found = []
        # Of two ranks on this host, and a quota counts.
        for available in (8, 2):
            monkeypatch.setattr(cores, "available", lambda n=available: n)
            found.append(fingerprints.digests(arrays))
        assert made == [4, 1]
        assert found[0] == found[1]


class TestTerminateOnNaN:
    def test_losses_are_exchanged_as_rarely_as_it_is_cheap(
        self, ring, monkeypatch
    ):
        clock = Clock()
        monkeypatch.setattr(time_budget, "time", clock)
        terminate_on_nan.install()
        exchanges = []

        def slow(array, *args, name, **kwargs):
            exchanges.append(batch)
            clock.now += 0.05
            return array

        monkeypatch.setattr(arrays, "allreduce", slow)
        callback = keras.callbacks.TerminateOnNaN()
        callback.set_model(make_model("built"))
        for batch in range(2000):
            clock.now += 0.01
            callback.on_train_batch_end(batch, {"loss": 1.0})
        # 0.1 s for nothing, then a hundredth of the time: 500 batches.
        assert exchanges[:2] == [0, 1]
        assert len(exchanges) <= 6
        assert np.all(np.diff(exchanges[2:]) >= 480)
        callback.on_epoch_end(0)
        assert len(exchanges) <= 7
        # Ranks that come in have exchanged nothing yet, and do so now. The
        # others have not forgotten a loss that they had not told.
        callback.on_train_batch_end(0, {"loss": np.nan})
        assert not callback.model.stop_training
        monkeypatch.setattr(generations, "_num_admissions", 1)
        batch = 2000
        callback.on_train_batch_end(batch, {"loss": 1.0})
        assert exchanges[-1] == 2000
        assert callback.model.stop_training


class TestMetricAverage:
    @staticmethod
    def other_rank(monkeypatch, totals):
        """Adds the state of another rank to each metric."""

        def allreduce_group(values, op, *, name, process_set):
            assert op == reduce_ops.Sum
            assert name in ("metrics/sum", "evaluation/metrics/sum")
            return [
                value + total
                for value, total in zip(values, totals, strict=True)
            ]

        monkeypatch.setattr(arrays, "allreduce_group", allreduce_group)

    @pytest.mark.parametrize("run_eagerly", [False, True])
    def test_state_is_summed_for_all_callbacks(
        self, ring, monkeypatch, run_eagerly
    ):
        # Sum and count of the loss, sum and count of the absolute error.
        self.other_rank(monkeypatch, [76.0, 76.0, 38.0, 76.0])
        model = make_model(
            "built",
            DistributedOptimizer(keras.optimizers.SGD(0.0)),
            run_eagerly=run_eagerly,
        )
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])
        seen = []
        early = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(dict(logs))
        )
        validation = []
        late = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(dict(logs)),
        )
        late.on_test_end = lambda logs: validation.append(dict(logs))
        x, y = make_data(24)
        history = model.fit(
            x,
            y,
            batch_size=8,
            epochs=2,
            verbose=0,
            validation_data=(x, y),
            callbacks=[early, MetricAverageCallback(), late],
        )
        loss = (np.sum(y**2) + 76.0) / 100
        error = (np.sum(np.abs(y)) + 38.0) / 100
        expected = {
            "loss": loss,
            "mae": error,
            "val_loss": loss,
            "val_mae": error,
        }
        assert len(seen) == 4
        for logs in seen:
            assert logs == pytest.approx(expected, rel=1e-5)
        assert len(validation) == 2
        for logs in validation:
            assert logs == pytest.approx({"loss": loss, "mae": error}, rel=1e-5)
        for key, values in history.history.items():
            assert values == pytest.approx([expected[key]] * 2, rel=1e-5)
        assert "_get_metrics_result_or_logs" not in vars(model)

    def test_evaluate(self, ring, monkeypatch):
        self.other_rank(monkeypatch, [76.0, 76.0, 38.0, 76.0])
        model = make_model("built")
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])
        x, y = make_data(24)
        results = model.evaluate(
            x, y, verbose=0, callbacks=[MetricAverageCallback()]
        )
        expected = [
            (np.sum(y**2) + 76.0) / 100,
            (np.sum(np.abs(y)) + 38.0) / 100,
        ]
        assert results == pytest.approx(expected, rel=1e-5)
        local = model.evaluate(x, y, verbose=0)
        assert local[0] == pytest.approx(np.mean(y**2), rel=1e-5)

    def test_an_evaluation_of_another_callback_is_left_alone(self, ring):
        x, y = make_data()
        counts = []

        class Evaluates(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                before = len(ring.calls)
                self.model.evaluate(x, y, verbose=0)
                counts.append(len(ring.calls) - before)

        make_model("built").fit(
            x,
            y,
            epochs=2,
            verbose=0,
            callbacks=[MetricAverageCallback(), Evaluates()],
        )
        assert counts == [0, 0]
        assert ring.names("grouped_allreduce") == 2 * ["metrics/sum"]

    def test_an_evaluation_has_a_name(self, ring):
        """A rank that evaluates alone is seen to do so."""
        x, y = make_data()
        make_model("built").fit(
            *(x, y),
            epochs=2,
            verbose=0,
            validation_data=(x, y),
            callbacks=[MetricAverageCallback()],
        )
        names = ["metrics/sum", "evaluation/metrics/sum"]
        assert ring.names("grouped_allreduce") == 2 * names

    def test_logs_of_a_train_step_of_ones_own(self, ring, monkeypatch):
        class Own(keras.Sequential):
            def train_step(self, data):
                super().train_step(data)
                return {"b": tf.constant(3.0), "a": tf.constant([1.0, 2.0])}

        def allreduce_group(values, op, *, name, process_set):
            if name != "metrics/logs":
                return values
            assert op is reduce_ops.Average
            return [value * 10 for value in values]

        model = Own([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(DistributedOptimizer("sgd"), "mse")
        monkeypatch.setattr(arrays, "allreduce_group", allreduce_group)
        x, y = make_data()
        history = model.fit(
            x, y, verbose=0, callbacks=[MetricAverageCallback()]
        )
        assert history.history["b"] == [30.0]
        assert np.array(history.history["a"]).tolist() == [[10.0, 20.0]]

    def test_aggregations(self, ring):
        class Odd(keras.metrics.Metric):
            def __init__(self):
                super().__init__(name="odd")
                self.summed = self.add_variable((), "zeros", name="summed")
                self.mean = self.add_variable(
                    (), "ones", aggregation="mean", name="mean"
                )
                self.first = self.add_variable(
                    (), "ones", aggregation="only_first_replica", name="first"
                )

            def update_state(self, *args, **kwargs):
                # A sum, of one batch.
                self.summed.assign(self.summed + 1.0)

            def reset_state(self):
                self.summed.assign(0.0)
                for variable in (self.mean, self.first):
                    variable.assign(1.0)

            def result(self):
                return tf.stack([v.value for v in self.variables])

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Odd()])
        x, y = make_data()
        results = model.evaluate(
            x,
            y,
            verbose=0,
            return_dict=True,
            callbacks=[MetricAverageCallback()],
        )
        assert results["odd"].tolist() == [2.0, 1.0, 1.0]
        assert ring.names() == [
            "evaluation/metrics/sum",
            "evaluation/metrics/mean",
            "evaluation/metrics/none/0",
        ]

    def test_one_rank(self, ring):
        ring.size = 1
        x, y = make_data()
        make_model("built").fit(
            x, y, verbose=0, callbacks=[MetricAverageCallback()]
        )
        assert ring.calls == []


def learning_rates(
    callback, optimizer=None, epochs=3, initial_epoch=0, **arguments
):
    """Trains, and returns the learning rate of each call of the step."""
    model = make_model(
        "built",
        DistributedOptimizer(optimizer or keras.optimizers.SGD(0.5)),
        **arguments,
    )
    watch = Watch(lambda m: float(m.optimizer.learning_rate))
    x, y = make_data(24)
    history = model.fit(
        x,
        y,
        batch_size=6,
        epochs=epochs,
        initial_epoch=initial_epoch,
        verbose=0,
        callbacks=[callback, watch],
    )
    return watch.seen, history.history["learning_rate"]


class TestLearningRate:
    def test_warmup(self, ring, capsys):
        ring.size = 4
        seen, logged = learning_rates(
            LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1)
        )
        np.testing.assert_allclose(seen[:8], np.linspace(0.2, 0.8, 8))
        np.testing.assert_allclose(seen[8:], 0.8)
        np.testing.assert_allclose(logged[1:], 0.8)
        assert "Epoch 2: the learning rate has reached 0.8" in (
            capsys.readouterr().out
        )

    def test_warmup_speaks_on_rank_0(self, ring, capsys):
        ring.rank = 1
        learning_rates(LearningRateWarmupCallback(0.8, 1, verbose=1))
        assert "learning rate" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        "make",
        [
            lambda: LearningRateWarmupCallback(0.8, warmup_epochs=2),
            lambda: LearningRateScheduleCallback(
                0.8, lambda epoch: 0.5**epoch, staircase=False
            ),
        ],
        ids=["warmup", "schedule"],
    )
    def test_a_run_that_goes_on_at_an_epoch(self, ring, make):
        whole, _ = learning_rates(make())
        rest, _ = learning_rates(make(), initial_epoch=1)
        np.testing.assert_allclose(rest, whole[4:])
        assert len(set(whole)) > 1

    def test_warmup_of_one_rank(self, ring):
        ring.size = 1
        seen, _ = learning_rates(LearningRateWarmupCallback(0.8, 2))
        np.testing.assert_allclose(seen, 0.8)

    def test_warmup_with_steps_per_execution(self, ring):
        seen, _ = learning_rates(
            LearningRateWarmupCallback(0.8, 2), steps_per_execution=3
        )
        # Steps 0 and 3 of each epoch of 4; then the warm-up is over.
        full = np.linspace(0.4, 0.8, 8)
        np.testing.assert_allclose(seen, [*full[[0, 3, 4, 7]], 0.8, 0.8])
        seen, _ = learning_rates(
            LearningRateWarmupCallback(0.8, 2), steps_per_execution=4
        )
        np.testing.assert_allclose(seen, [full[0], full[4], 0.8])

    def test_warmup_before_a_schedule(self, ring):
        model = make_model("built", DistributedOptimizer("sgd"))
        watch = Watch(lambda m: float(m.optimizer.learning_rate))
        x, y = make_data(24)
        model.fit(
            x,
            y,
            epochs=3,
            verbose=0,
            batch_size=12,
            callbacks=[
                LearningRateScheduleCallback(0.4, 0.1, start_epoch=1),
                LearningRateWarmupCallback(0.4, 1),
                watch,
            ],
        )
        np.testing.assert_allclose(
            watch.seen, [0.2, 0.4, 0.04, 0.04, 0.04, 0.04]
        )

    def test_staircase(self, ring):
        seen, logged = learning_rates(
            LearningRateScheduleCallback(
                0.4, lambda epoch: 0.5**epoch, start_epoch=1, end_epoch=3
            ),
            epochs=4,
        )
        rates = [0.5, 0.2, 0.1, 0.1]
        np.testing.assert_allclose(logged, rates)
        np.testing.assert_allclose(seen, np.repeat(rates, 4))

    def test_within_epochs(self, ring):
        seen, _ = learning_rates(
            LearningRateScheduleCallback(
                1.0, lambda epoch: 1.0 + epoch, staircase=False
            ),
            epochs=2,
        )
        np.testing.assert_allclose(seen, 1.0 + np.arange(8) / 4)

    @pytest.mark.parametrize(
        "wrap", [lambda o: o, keras.optimizers.LossScaleOptimizer]
    )
    @pytest.mark.parametrize("correction", [False, True])
    def test_momentum_correction(self, ring, correction, wrap):
        """A change of the learning rate as in the large-batch recipe.

        Momentum holds past updates, each times the learning rate of its step.
        Corrected, it holds what it would had all steps had the new one.
        """
        variable = keras.Variable(0.0, name="v")
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(wrap(optimizer), "mse")
        optimizer.build([variable])
        with kr.allow_local_updates():
            optimizer.apply([tf.constant(1.0)], [variable])
        callback = LearningRateScheduleCallback(
            0.1, 3.0, momentum_correction=correction
        )
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        (momentum,) = optimizer.momentums
        np.testing.assert_allclose(
            float(momentum), -0.3 if correction else -0.1
        )
        callback.on_epoch_begin(1)
        np.testing.assert_allclose(
            float(momentum), -0.3 if correction else -0.1
        )

    @pytest.mark.parametrize("nesterov", [False, True])
    def test_momentum_is_corrected_in_each_step(self, ring, nesterov):
        """Against the formula, with a gradient of 1 for a weight of 0."""
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]
        )
        model.set_weights([np.zeros((1, 1))])
        model.compile(
            DistributedOptimizer(
                keras.optimizers.SGD(0.1, momentum=0.5, nesterov=nesterov)
            ),
            lambda y_true, y_pred: y_pred,
        )
        seen = []

        class Watch(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                seen.append(model.get_weights()[0][0, 0])

        def multiplier(epoch):
            # Not in each step another rate.
            return 1.0 + round(3 * epoch)

        x = np.ones((8, 1))
        model.fit(
            *(x, x),
            batch_size=2,
            epochs=3,
            verbose=0,
            callbacks=[
                Watch(),
                LearningRateScheduleCallback(
                    0.1, multiplier, end_epoch=2, staircase=False
                ),
            ],
        )
        rates = [0.1 * multiplier(min(step, 7) / 4) for step in range(12)]
        value, momentum, rate, expected = 0.0, 0.0, 0.1, []
        for new in rates:
            momentum = 0.5 * momentum * new / rate - new
            value += 0.5 * momentum - new if nesterov else momentum
            rate = new
            expected.append(value)
        np.testing.assert_allclose(seen, expected, rtol=1e-6)

    @pytest.mark.parametrize(
        "run", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=str
    )
    @pytest.mark.parametrize(
        "make",
        [
            lambda: keras.optimizers.SGD(0.1, momentum=0.5),
            lambda: keras.optimizers.SGD(0.1, momentum=0.5, nesterov=True),
            lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
            lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1, momentum=0.5), initial_scale=8.0
            ),
        ],
        ids=["SGD", "nesterov", "RMSprop", "LossScaleOptimizer"],
    )
    def test_momentum_is_scaled_by_the_step(self, ring, monkeypatch, make, run):
        """Nothing is done to the momentum between steps."""
        ends = {}
        for in_step in (True, False):
            keras.utils.set_random_seed(1)
            ring.size = 1
            model = keras.Sequential(
                [keras.Input((4,)), *[keras.layers.Dense(4) for _ in range(3)]]
            )
            optimizer = DistributedOptimizer(make())
            model.compile(optimizer, "mse", **run)
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            kept = []

            class Keeps(keras.callbacks.Callback):
                def _keep(self, inner=inner, kept=kept):
                    momentums = compat.momentums(inner)
                    kept.append([np.array(m) for m in momentums])

                def on_train_batch_end(self, batch, logs=None):
                    self._keep()

                def on_train_batch_begin(self, batch, logs=None):
                    if batch:
                        self._keep()

            if not in_step:
                monkeypatch.setattr(
                    compat, "can_scale_in_step", lambda _: False
                )
            callback = LearningRateWarmupCallback(0.1, warmup_epochs=1)
            # From a fifth.
            callback.multiplier = lambda epoch: 0.2 + 0.8 * epoch
            x = np.random.default_rng(0).normal(size=(40, 4))
            model.fit(
                *(x, x),
                batch_size=8,
                verbose=0,
                shuffle=False,
                callbacks=[callback, Keeps()],
            )
            ends[in_step] = model.get_weights()
            between = list(zip(kept[:-1:2], kept[1::2], strict=True))
            assert len(between) == 4
            for end, begin in between:
                same = [
                    np.array_equal(*each)
                    for each in zip(end, begin, strict=True)
                ]
                assert same == [in_step] * 6
            assert type(inner.momentum) is float
            assert inner.get_config()["momentum"] == 0.5
        for one, other in zip(*ends.values(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize(
        "make", [keras.optimizers.SGD, keras.optimizers.RMSprop]
    )
    def test_a_factor_of_1_changes_no_bit(self, ring, make, dtype):
        """What the momentum is multiplied by is rounded as it was.

        0.9 is no binary number.
        """
        ends = []
        for corrected in (False, True):
            ring.size = 1
            optimizer = DistributedOptimizer(make(0.1, momentum=0.9))
            variable = keras.Variable(np.ones(4), dtype=dtype, name="v")
            optimizer.build([variable])
            if corrected:
                MomentumCorrection(optimizer).scale(1.0)
            for step in range(1, 4):
                gradient = tf.cast(tf.range(4) + step, dtype)
                optimizer.apply([gradient], [variable])
            ends.append(np.array(variable))
        np.testing.assert_array_equal(*ends)

    def test_batches_that_are_passed_over(self, ring):
        """They set the learning rate, and no step follows them."""
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
        model = make_model("built", DistributedOptimizer(optimizer))
        callback = LearningRateWarmupCallback(0.1, 2, steps_per_epoch=4)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        train = model.train_function
        model.train_function = skipped_batches.skipping(lambda _: {})
        for batch in range(3):
            callback.on_train_batch_begin(batch)
        passed = float(optimizer.learning_rate)
        factor = callback._momentum._traced._in_step._factor
        assert float(factor) == 1.0
        model.train_function = train
        callback.on_train_batch_begin(3)
        expected = float(optimizer.learning_rate) / passed
        assert float(factor) == pytest.approx(expected, rel=1e-6)
        assert expected > 1
        # That step has failed. Another training may restore its state.
        callback.on_train_begin()
        assert float(factor) == 1.0

    @pytest.mark.parametrize("form", ["fit", "loop"])
    def test_steps_that_were_traced_before(self, ring, form):
        """They know no factor, even if a step that is traced later would."""
        ends = {}
        for case in ("traced", "untraced"):
            keras.utils.set_random_seed(1)
            ring.size = 1
            optimizer = keras.optimizers.SGD(0.05, momentum=0.5)
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile(DistributedOptimizer(optimizer), "mse")
            x, y = make_data()

            @tf.function
            def step(x, y, model=model):
                model.train_step((x, y))

            def loop(model=model, step=step, x=x, y=y):
                callback = LearningRateWarmupCallback(0.1, warmup_epochs=1)
                callback.multiplier = lambda epoch: 0.2 + 0.8 * epoch
                callback.set_model(model)
                callback.set_params({"steps": 6})
                callback.on_train_begin()
                callback.on_epoch_begin(0)
                for batch in range(6):
                    callback.on_train_batch_begin(batch)
                    rows = 2 if batch == 3 else 4
                    step(x[:rows], y[:rows])

            fit = {"batch_size": 10, "verbose": 0, "shuffle": False}
            if case == "traced":
                before = model.get_weights()
                if form == "fit":
                    model.fit(x[:20], y[:20], **fit)
                else:
                    step(x[:4], y[:4])
                model.set_weights(before)
                for variable in optimizer.variables:
                    if "learning_rate" not in variable.path:
                        variable.assign(variable * 0)
            if form == "loop":
                loop()
            else:
                callback = LearningRateWarmupCallback(0.1, warmup_epochs=1)
                callback.multiplier = lambda epoch: 0.2 + 0.8 * epoch
                # The last batch is of another shape.
                model.fit(x, y, **fit, callbacks=[callback])
            ends[case] = model.get_weights()[0]
        np.testing.assert_allclose(*ends.values(), rtol=1e-5)

    def test_all_momentums_are_scaled_by_one_call(self, ring, monkeypatch):
        """Not by one operation for each of them in each batch."""
        model = keras.Sequential(
            [keras.Input((4,)), *[keras.layers.Dense(4) for _ in range(8)]]
        )
        optimizer = keras.optimizers.SGD(
            0.1, momentum=0.5, gradient_accumulation_steps=2
        )
        model.compile(DistributedOptimizer(optimizer), "mse")
        assigned = []
        assign = keras.Variable.assign

        def counted(variable, value):
            if tf.executing_eagerly() and "momentum" in variable.path:
                assigned.append(variable.path)
            return assign(variable, value)

        monkeypatch.setattr(keras.Variable, "assign", counted)
        callback = LearningRateWarmupCallback(0.1, warmup_epochs=2)
        x, _ = make_data()
        model.fit(x, x, batch_size=4, epochs=2, verbose=0, callbacks=[callback])
        assert len(optimizer.momentums) == 16
        assert not assigned
        multiply = callback._momentum._traced._multiply
        assert multiply.experimental_get_tracing_count() == 1
        before = [np.array(m) for m in optimizer.momentums]
        callback._set_learning_rate(0)
        factor = float(optimizer.learning_rate) / 0.1
        assert factor != 1
        for momentum, value in zip(optimizer.momentums, before, strict=True):
            np.testing.assert_allclose(momentum, value * factor, rtol=1e-6)
        assert callback._momentum._traced._multiply is multiply

    def test_momentum_of_adam_knows_no_learning_rate(self, ring):
        model = make_model("built", keras.optimizers.Adam(0.1))
        optimizer = model.optimizer
        optimizer.build(model.trainable_variables)
        gradients = [tf.ones(v.shape) for v in model.trainable_variables]
        ring.size = 1
        optimizer.apply(gradients, model.trainable_variables)
        before = [v.numpy() for v in optimizer.variables[2:]]
        callback = LearningRateScheduleCallback(0.1, 3.0)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        for a, b in zip(before, optimizer.variables[2:], strict=True):
            np.testing.assert_array_equal(a, b.numpy())

    def test_under_a_loss_scale(self, ring):
        keras.config.set_dtype_policy("mixed_float16")
        seen, _ = learning_rates(LearningRateScheduleCallback(0.4, 0.5))
        np.testing.assert_allclose(seen, 0.2)

    @pytest.mark.parametrize(
        "optimizer",
        [
            lambda: keras.optimizers.SGD(
                keras.optimizers.schedules.CosineDecay(0.1, 10)
            ),
            lambda: keras.optimizers.SGD(lambda: 0.1),
            lambda: keras.optimizers.MultiOptimizer(
                keras.optimizers.OptimizerMap(keras.optimizers.SGD())
            ),
        ],
        ids=["schedule", "function", "multi"],
    )
    def test_optimizers_that_compute_their_learning_rate(self, ring, optimizer):
        with pytest.raises(ValueError, match="Give the optimizer a float"):
            learning_rates(LearningRateScheduleCallback(0.1, 1.0), optimizer())

    @pytest.mark.filterwarnings("ignore:Your input ran out of data")
    def test_unknown_number_of_steps(self, ring):
        model = make_model("built")
        x, y = make_data()
        dataset = (
            tf.data.Dataset.from_tensor_slices((x, y))
            .filter(lambda *_: True)
            .batch(6)
        )
        with pytest.raises(ValueError, match="Set `steps_per_epoch`"):
            model.fit(
                dataset,
                shuffle=False,
                verbose=0,
                callbacks=[LearningRateWarmupCallback(0.1)],
            )
        model.fit(
            dataset,
            shuffle=False,
            verbose=0,
            callbacks=[LearningRateWarmupCallback(0.1, steps_per_epoch=4)],
        )

    def test_arguments_without_meaning(self):
        with pytest.raises(ValueError, match="`warmup_epochs`"):
            LearningRateWarmupCallback(0.1, warmup_epochs=0)
        with pytest.raises(ValueError, match="`steps_per_epoch`"):
            LearningRateScheduleCallback(0.1, 1.0, steps_per_epoch=0)


class TestModelCheckpoint:
    @pytest.mark.parametrize("weights_only", [False, True])
    def test_a_file_is_the_old_one_or_the_new_one(
        self, ring, monkeypatch, tmp_path, weights_only
    ):
        """Looks at the file while the next one is being written."""
        path = tmp_path / ("m.weights.h5" if weights_only else "m.keras")
        model = make_model("built")
        save = "save_weights" if weights_only else "save"
        save_model = getattr(model, save)
        callback = ModelCheckpoint(path, save_weights_only=weights_only)
        callback.set_model(model)
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {})
        before = path.read_bytes()
        seen = []

        def save_and_fail(filepath, **arguments):
            save_model(filepath, **arguments)
            seen.append(path.read_bytes())
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(model, save, save_and_fail)
        with pytest.raises(CheckpointError, match="No space left on device"):
            callback.on_epoch_end(1, {})
        assert seen == [before]
        assert path.read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            path.name,
            f"{path.name}.manifest.json",
        ]

    def test_an_error_names_the_file(self, ring, monkeypatch, tmp_path):
        model = make_model("built")
        callback = ModelCheckpoint(tmp_path / "{epoch:02d}.keras")
        callback.set_model(model)

        def fail(filepath, **arguments):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(model, "save", fail)
        said = r"could not save the model to .*/02\.keras: OSError: .*No space"
        with pytest.raises(CheckpointError, match=said):
            callback.on_epoch_end(1, {})

    def test_the_last_are_kept(self, ring, tmp_path):
        for number in (1, 2):
            # The second one is a run that goes on.
            callback = ModelCheckpoint(
                tmp_path / "{epoch}-{loss:.1f}.weights.h5",
                save_weights_only=True,
                keep=2,
            )
            callback.set_model(make_model("built"))
            for epoch in range(number):
                callback.on_epoch_begin(number + epoch)
                callback.on_epoch_end(number + epoch, {"loss": 0.5})
        assert sorted(p.name for p in tmp_path.glob("*.h5")) == [
            "3-0.5.weights.h5",
            "4-0.5.weights.h5",
        ]
        manifest = json.loads(
            (tmp_path / "4-0.5.weights.h5.manifest.json").read_text()
        )
        assert manifest["at"] == [4, 0]
        assert manifest["versions"]["keras"] == keras.__version__

    @pytest.mark.parametrize(
        ("path", "keep"), [("{epoch}.keras", 0), ("{epoch}/model.keras", 2)]
    )
    def test_arguments_without_meaning(self, path, keep):
        with pytest.raises(ValueError, match="`keep`"):
            ModelCheckpoint(path, keep=keep)

    def test_a_damaged_model_is_not_loaded(self, ring, tmp_path):
        path = tmp_path / "m.keras"
        model = make_model("built")
        model.optimizer.build(model.trainable_variables)
        callback = ModelCheckpoint(path)
        callback.set_model(model)
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {})
        load_model(path)
        model.layers[-1].bias.assign([1.0])
        model.save(path)
        load_model(path)
        times = files.manifest_path(path).stat().st_mtime_ns
        os.utime(path, ns=(times, times))
        with pytest.raises(CheckpointError, match="The model is damaged"):
            load_model(path)

    def test_other_ranks_write_nothing(self, ring, monkeypatch, tmp_path):
        ring.rank = 1
        shared = []
        monkeypatch.setattr(
            "keras_ring.core.rank_zero.broadcast_in",
            lambda generation, obj, root_rank, name: (
                shared.append(obj) or Outcome(result=0.5)
            ),
        )
        callback = ModelCheckpoint(tmp_path / "m.keras", save_best_only=True)
        callback.set_model(make_model("built"))
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {"val_loss": 0.25})
        # What rank 0 found is the best of all.
        assert callback.best == 0.5
        assert shared == [None]
        assert list(tmp_path.iterdir()) == []


class TestBackupAndRestore:
    @pytest.mark.parametrize(
        ("settings", "count"),
        [({}, 2), ({"double_checkpoint": False}, 1), ({"keep": 3}, 3)],
    )
    def test_the_last_are_kept(
        self, ring, monkeypatch, tmp_path, settings, count
    ):
        monkeypatch.setattr(
            "keras_ring.core.rank_zero.broadcast_in",
            lambda generation, obj, root_rank, name: obj,
        )
        model = make_model("built")
        backup = BackupAndRestore(
            tmp_path, save_freq=1, delete_checkpoint=False, **settings
        )
        x, y = make_data()
        model.fit(x, y, batch_size=4, verbose=0, callbacks=[backup])
        # Of the six steps.
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"step-{step:08d}" for step in range(7 - count, 7)
        ]

    def test_arguments_without_meaning(self):
        with pytest.raises(ValueError, match="`keep`"):
            BackupAndRestore("backup", keep=0)
