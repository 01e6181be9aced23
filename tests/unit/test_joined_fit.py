"""A `fit` that processes come into, in one process."""

import contextlib
import dataclasses
import inspect
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_ring as kr
from keras_ring.core import generations
from keras_ring.keras import scope
from keras_ring.keras.agreement import catching_up, training_end
from keras_ring.keras.elastic import admission, joined_fit
from keras_ring.keras.elastic.places import Places
from keras_ring.keras.lanes import callback_state


class _Best(keras.callbacks.Callback):
    shared_state = ("best", "not_there")

    def __init__(self, best):
        super().__init__()
        self.best = best
        self.mine = best


def test_callbacks_are_given_what_others_decide_by():
    theirs = [keras.callbacks.EarlyStopping(), _Best(1), _Best(2)]
    theirs[0].wait, theirs[0].best = 3, 0.5
    theirs[0].patience = 7
    state = callback_state.state_of(theirs)
    # The bar of one rank is on no other.
    ours = [keras.callbacks.ProgbarLogger(), _Best(3), _Best(4)]
    ours.append(keras.callbacks.EarlyStopping(patience=1))
    callback_state.give(ours, state)
    assert [each.best for each in ours[1:3]] == [1, 2]
    assert [each.mine for each in ours[1:3]] == [3, 4]
    assert (ours[3].wait, ours[3].best, ours[3].patience) == (3, 0.5, 1)


def test_a_subclass_of_keras_callbacks_has_its_state():
    class Mine(keras.callbacks.ReduceLROnPlateau):
        shared_state = ("seen",)
        seen = 5

    callback = Mine()
    callback.cooldown_counter = 2
    (state,) = callback_state.state_of([callback]).values()
    assert state["cooldown_counter"] == 2
    assert state["seen"] == 5


def test_the_first_fit_is_the_place():
    places = Places()
    assert places.take_fit()
    assert not places.take_fit()


def test_a_function_of_the_program_is_the_place():
    places = Places()
    places.note_function()
    assert not places.take_fit()


class _Noting(keras.callbacks.Callback):
    """Notes what it is told, and changes what it should not."""

    def __init__(self):
        super().__init__()
        self.told = []

    def on_train_begin(self, logs=None):
        self.model.set_weights([w + 100.0 for w in self.model.get_weights()])

    def on_epoch_begin(self, epoch, logs=None):
        self.told.append(("epoch", epoch))
        self.model.optimizer.learning_rate = 0.5
        self.exchanges_nothing = catching_up.exchanges_nothing(
            kr.global_process_set
        )

    def on_train_batch_begin(self, batch, logs=None):
        self.told.append(("batch", batch))
        self.begins_exchanging = not catching_up.exchanges_nothing(
            kr.global_process_set
        )

    def on_train_batch_end(self, batch, logs=None):
        self.told.append(("end", batch))


def _data(rows, value):
    x = np.full((rows, 2), value, np.float32)
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)


@contextlib.contextmanager
def _joining(others):
    with contextlib.ExitStack() as stack:
        for each in others.patches():
            stack.enter_context(each)
        yield


class _Others:
    """The other ranks: in epoch 3, of which two batches are over."""

    def __init__(self, model, given):
        self._model = model
        self._given = given
        self.asked = []
        self.steps_alone = None

    def come_in(self, variables):
        assert variables == self._model.variables
        self.steps_alone = int(self._model.optimizer.iterations)

    def broadcast_model(self, model, root, **options):
        assert (model, root) == (self._model, 0)
        self.options = options
        model.set_weights([np.full_like(w, 7.0) for w in model.get_weights()])
        model.optimizer.learning_rate = 0.25

    def allreduce(self, array, op, *, name):
        self.asked.append(name)
        return np.array([0, 0, 1])

    def patches(self):
        patch = mock.patch.object
        share = lambda give, has_come_in: give()  # noqa: E731
        given = lambda mine, root, name: self._given  # noqa: E731
        return [
            patch(joined_fit.generations, "is_waiting", lambda: True),
            patch(joined_fit.generations, "num_waiting", lambda: 0),
            patch(joined_fit, "_is_of_place", lambda call: True),
            patch(joined_fit, "places", Places()),
            patch(admission, "come_in", self.come_in),
            patch(admission, "share", share),
            patch(joined_fit, "broadcast_object", given),
            patch(joined_fit, "broadcast_model", self.broadcast_model),
            patch(joined_fit.arrays, "allreduce", self.allreduce),
            patch(catching_up, "is_alone", lambda process_set: False),
        ]


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    return model


def _given(**changes):
    history = {("History", 0): {"epoch": [0, 1, 2], "history": {"loss": [9.0]}}}
    given = joined_fit._Given(3, 5, 2, history)
    return dataclasses.replace(given, **changes)


def test_a_fit_goes_on_where_the_others_are(model):
    joined_fit.install()
    others = _Others(model, _given())
    noting = _Noting()
    with _joining(others):
        history = model.fit(
            _data(6, 1.0), shuffle=False, epochs=5, verbose=0, callbacks=noting
        )
    # One step alone, which none of its callbacks was told of.
    assert others.steps_alone == 1
    shifted = [("batch", 2), ("end", 2), ("batch", 3), ("end", 3)]
    assert noting.told[:5] == [("epoch", 3), *shifted]
    assert noting.told[7:10] == [("epoch", 4), ("batch", 0), ("end", 0)]
    assert history.epoch == [0, 1, 2, 3, 4]
    assert len(history.history["loss"]) == 3
    assert others.asked
    assert set(others.asked) == {"elastic/fit_waiting"}
    assert scope.current().joined_fit is None


@pytest.fixture
def job():
    kr.init()
    yield
    kr.shutdown()


@pytest.mark.usefixtures("job")
def test_momentum_is_corrected_in_the_step_that_is_traced_alone(model):
    joined_fit.install()
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer, "mse", jit_compile=False)
    others = _Others(model, _given())
    warm_up = kr.callbacks.LearningRateWarmupCallback(0.1, steps_per_epoch=1)
    with _joining(others):
        model.fit(
            _data(2, 1.0),
            shuffle=False,
            epochs=4,
            verbose=0,
            callbacks=[warm_up],
        )
    assert warm_up._momentum._traced._in_step is not None


@pytest.mark.usefixtures("job")
def test_momentum_is_not_scaled_for_a_rate_that_is_undone(model):
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer, "mse", jit_compile=False)
    half = kr.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5)
    half.set_model(model)
    half.on_train_begin()
    with scope.inside(catches_up=True):
        half.on_epoch_begin(3)
    factor = half._momentum._traced._in_step._factor
    assert float(factor) == 1.0
    optimizer.learning_rate = 0.1
    half.on_epoch_begin(4)
    assert float(factor) == pytest.approx(0.5)


def test_what_callbacks_set_before_the_first_batch_is_undone(model):
    joined_fit.install()
    others = _Others(model, _given(epochs=4))
    noting = _Noting()
    with _joining(others):
        model.fit(
            _data(2, 0.0),
            shuffle=False,
            epochs=4,
            verbose=0,
            callbacks=[noting],
        )
    assert noting.exchanges_nothing
    assert noting.begins_exchanging
    assert float(model.optimizer.learning_rate) == 0.25
    # The gradient of the kernel is 0; that of the bias is 2 * 7.
    kernel, bias = model.get_weights()
    assert kernel.ravel().tolist() == [7.0, 7.0]
    assert bias.tolist() == [7.0 - 0.25 * 2 * 7.0]


def _call(model, **options):
    call = inspect.signature(keras.Model.fit).bind(model, "data", **options)
    call.apply_defaults()
    return call


def test_a_rank_that_came_in_itself_has_nothing_to_give(model):
    joined = joined_fit.JoinedFit(_call(model))
    with (
        mock.patch.object(joined_fit, "broadcast_object", lambda *a, **k: None),
        pytest.raises(kr.errors.UnavailableError, match="all ranks that had"),
    ):
        joined._share(None)


def test_the_callback_says_what_is_shared(model):
    mine = keras.Variable(1.0)
    optimizer = keras.optimizers.SGD()
    callback = kr.callbacks.BroadcastGlobalVariablesCallback(
        local_variables=[mine], optimizers=[optimizer], fold_rank=False
    )
    joined = joined_fit.JoinedFit(_call(model, callbacks=[callback]))
    others = _Others(model, _given())
    with _joining(others):
        joined._share(_given())
    assert others.options == {
        "local_variables": [mine],
        "optimizers": [optimizer],
        "fold_rank": False,
    }


@pytest.mark.parametrize(
    ("options", "may"),
    [
        ({}, True),
        ({"callbacks": keras.callbacks.TerminateOnNaN()}, True),
        ({"callbacks": [_Best(1), keras.callbacks.History()]}, True),
        ({"steps_per_epoch": 3}, False),
        ({"callbacks": keras.callbacks.BackupAndRestore("x")}, False),
        ({"callbacks": [kr.callbacks.BackupAndRestore("x")]}, False),
    ],
)
def test_ranks_agree_on_whether_others_may_come_in(model, options, may):
    """A program may give such a callback to rank 0 alone."""
    joined = joined_fit.JoinedFit(_call(model, **options))
    assert joined.is_refused is not may
    told = []

    def allreduce(array, op, *, name):
        told.append(array.tolist())
        # Somebody waits, as another rank has heard.
        return np.array([1, told[-1][1], 1])

    patch = mock.patch.object
    model.stop_training = False
    joined.callbacks = keras.callbacks.CallbackList([], model=model)
    let_in = mock.Mock()
    with (
        patch(joined_fit.generations, "num_waiting", lambda: 0),
        patch(joined_fit.arrays, "allreduce", allreduce),
        patch(joined_fit.positions, "are_left_for", lambda waiting, data: True),
        patch(admission, "let_in", let_in),
        patch(admission, "share", lambda give, has_come_in: None),
    ):
        joined.batch_ends(0)
        assert let_in.called is may
        model.stop_training = True
        joined.batch_ends(1)
        assert let_in.call_count == int(may)
    assert [refused for _, refused, _ in told] == [int(not may), 1]


def test_which_fit_is_the_place(model):
    call = _call(model)
    model.discriminator_optimizer = keras.optimizers.SGD()
    settings = types.SimpleNamespace(elastic=True)
    by_optimizer = {model.discriminator_optimizer: settings}
    patch = mock.patch.object
    with (
        patch(joined_fit.topology, "is_initialized", lambda: True),
        patch(joined_fit.topology, "is_elastic", lambda: True),
        patch(joined_fit, "distributed_settings", by_optimizer.get),
        patch(joined_fit.positions, "are_of", lambda data: data == "data"),
    ):
        assert joined_fit._is_of_place(call)
        with kr.allow_local_updates():
            assert not joined_fit._is_of_place(call)
        with pytest.raises(ValueError, match="Received: class_weight="):
            joined_fit._is_of_place(_call(model, class_weight={0: 2.0}))
        # All of them, or none.
        other = types.SimpleNamespace(elastic=False)
        by_optimizer[model.optimizer] = other
        assert not joined_fit._is_of_place(call)
        by_optimizer.clear()
        assert not joined_fit._is_of_place(call)


def test_ranks_that_come_in_compare_when_the_others_do(model):
    theirs, ours = (kr.callbacks.ConsistencyCheck(every=5) for _ in "ab")
    theirs._checked = 9
    callback_state.give([ours], callback_state.state_of([theirs]))
    assert ours._checked == 9


@pytest.mark.parametrize("results", [None, {"real": [1.0]}])
def test_the_input_pipeline_is_measured_by_all_or_none(model, results):
    theirs, ours = (kr.callbacks.InputPipeline() for _ in "ab")
    for each in (theirs, ours):
        each.set_model(model)
        each.on_train_begin()
    theirs.results = results
    theirs.on_train_batch_begin(0)
    with mock.patch.object(generations, "_num_admissions", 1):
        ours.on_train_begin()
        callback_state.give([ours], callback_state.state_of([theirs]))
        for each in (theirs, ours):
            each.on_train_batch_begin(1)
    assert ours.results == theirs.results == results
    assert results or ours._calls == theirs._calls == 1


def test_checkpoints_count_batches_anew_in_the_next_fit():
    theirs, ours = (
        kr.callbacks.ModelCheckpoint("x.keras", save_freq=3) for _ in "ab"
    )
    theirs.on_train_begin()
    with mock.patch.object(generations, "_num_admissions", 1):
        ours.on_train_begin()
        callback_state.give([ours], callback_state.state_of([theirs]))
        for each in (theirs, ours):
            each._batches_seen_since_last_saving = 2
            each.on_train_begin()
            assert each._batches_seen_since_last_saving == 0


@pytest.mark.usefixtures("job")
def test_the_figures_of_a_fit_end_with_it(model):
    model.fit(_data(2, 1.0), shuffle=False, verbose=0)
    assert training_end._companion is None
