"""The states of elastic trainings, in one process."""

import types
from unittest import mock

import keras
import numpy as np
import pytest

import keras_ring as kr
from keras_ring.core import generations
from keras_ring.keras import scope
from keras_ring.keras.checkpoint import background_write
from keras_ring.keras.elastic import admission, positions, states


def _model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=False)
    return model


def _fit(model, **options):
    x = np.arange(16.0).reshape(8, 2)
    model.fit(x, x[:, :1], batch_size=2, verbose=0, shuffle=False, **options)


def test_attributes_are_kept_and_restored():
    state = kr.elastic.ObjectState(epoch=0, seen=[])
    assert (state.epoch, state.seen) == (0, [])
    state.epoch = 1
    state.seen.append("a")
    state.save()
    state.epoch = 2
    state.seen.append("b")
    state.restore()
    assert (state.epoch, state.seen) == (1, ["a"])
    # What was kept is not what the program changes.
    state.seen.append("c")
    state.restore()
    assert state.seen == ["a"]


def test_a_model_is_kept_and_restored():
    model = _model()
    state = kr.elastic.KerasState(model, epoch=0)
    _fit(model)
    state.epoch = 1
    state.save()
    kept = [np.array(v) for v in state.variables_now()]
    assert len(kept) > len(model.variables) + 2  # those of the optimizer
    _fit(model)
    state.epoch = 2
    state.restore()
    assert state.epoch == 1
    for variable, value in zip(state.variables_now(), kept, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_what_is_shared_is_not_what_was_kept():
    model = _model()
    state = kr.elastic.KerasState(model, epoch=0)
    state.save()
    _fit(model)
    state.epoch = 1
    trained = [np.array(v) for v in model.variables]
    with _Job([]):
        with mock.patch.object(states, "broadcast_model"):
            with mock.patch.object(states, "broadcast_object", _same):
                state.sync()
    assert state.epoch == 1
    for variable, value in zip(model.variables, trained, strict=True):
        np.testing.assert_array_equal(variable, value)
    state.restore()
    np.testing.assert_array_equal(model.variables[0], trained[0])


def _same(values, root_rank, name):
    return values


def test_variables_are_kept_and_restored():
    variable = keras.Variable([1.0, 2.0])
    state = kr.elastic.TensorFlowState(variables=[variable], step=3)
    state.save()
    variable.assign([5.0, 6.0])
    state.step = 4
    state.restore()
    np.testing.assert_array_equal(variable, [1.0, 2.0])
    assert state.step == 3


def test_what_is_no_state():
    with pytest.raises(ValueError, match="must be built before"):
        kr.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(NotImplementedError, match="session=<object"):
        kr.elastic.TensorFlowState(session=object())
    with pytest.raises(ValueError, match="Received: batches_per_commit=0"):
        kr.elastic.CommitStateCallback(kr.elastic.ObjectState(), 0)
    train = kr.elastic.run(lambda state: None)
    with pytest.raises(TypeError, match=r"Received: \{\} of type dict"):
        train({})
    with pytest.raises(kr.errors.NotInitializedError):
        train(kr.elastic.ObjectState())


def test_fit_keeps_the_state_up_to_date():
    model = _model()
    state = kr.elastic.KerasState(model, batch=0, epoch=0)
    noted = []
    state.check_host_updates = lambda: noted.append((state.epoch, state.batch))
    callbacks = [
        kr.elastic.UpdateEpochStateCallback(state),
        kr.elastic.UpdateBatchStateCallback(state),
        kr.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    _fit(model, epochs=2, callbacks=callbacks)
    assert noted == [(0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0)]
    # Either way to go on.
    _fit(model, epochs=5 - state.epoch, callbacks=callbacks)
    assert state.epoch == 5
    _fit(model, initial_epoch=5, epochs=7, callbacks=callbacks)
    assert state.epoch == 7


class _Job:
    """Stands in for an elastic job, whose news are a list."""

    def __init__(self, news, *, waits=False):
        self.news = news
        self.waits = waits
        self.at_end = False
        # What rank 0 tells: whether it has come in.
        self.root_has_come_in = False
        self.did = []

    def __enter__(self):
        topology = types.SimpleNamespace(
            rank=0, size=1, generation=0, local_rank=0, local_size=1
        )
        self._patches = [
            mock.patch("keras_ring.core.topology.topology", lambda: topology),
            mock.patch("keras_ring.core.topology.is_elastic", lambda: True),
            mock.patch("keras_ring.core.topology.is_initialized", lambda: True),
            mock.patch.object(generations, "is_waiting", lambda: self.waits),
            mock.patch.object(generations, "num_waiting", lambda: 0),
            mock.patch.object(generations, "admit", self._admit),
            mock.patch.object(states.arrays, "allreduce", self._agree),
            mock.patch.object(positions, "pause", self._pause),
            mock.patch.object(positions, "share", self._share),
            mock.patch.object(background_write, "wait", self._wait_for_write),
            mock.patch.object(positions, "are_at_end", lambda: self.at_end),
            mock.patch.object(admission, "broadcast_object", self._root_has),
            mock.patch.object(generations, "_num_admissions", 0),
        ]
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *exc_info):
        for each in self._patches:
            each.stop()

    def _pause(self):
        self.did.append("pause")

    def _wait_for_write(self):
        self.did.append("write")

    def _root_has(self, has_come_in, root_rank, name):
        assert (root_rank, name) == (0, "elastic/root_has_come_in")
        return self.root_has_come_in

    def _admit(self):
        self.did.append("admit")
        self.waits = False
        generations._num_admissions += 1

    def _agree(self, array, op, *, name):
        assert op is kr.Max
        return np.array(self.news.pop(0) if self.news else [0, 9])

    def _share(self, *, has_come_in):
        self.did.append(f"positions, {has_come_in}")


class _State(kr.elastic.State):
    """Writes down what is asked of it."""

    def __init__(self, did):
        super().__init__()
        self._did = did

    def save(self):
        self._did.append("save")

    def sync(self):
        self._did.append("sync")

    def reset(self):
        self._did.append("reset")


@kr.elastic.run
def _train(state, did, *, until):
    did.append("train again" if scope.current().goes_on else "train")
    while did.count("commit") < until:
        did.append("commit")
        state.commit()
    return "trained"


def test_others_are_let_in():
    # (waiting, generation): at the begin, at two commits, and so on.
    with _Job([(0, 3), (0, 3), (2, 3), (0, 4), (0, 4)]) as job:
        state = _State(job.did)
        state.register_reset_callbacks([lambda: job.did.append("callback")])
        assert _train(state, job.did, until=3) == "trained"
    assert job.did == [
        *("sync", "train", "commit", "save", "commit", "save"),
        *(
            "pause",
            "write",
            "admit",
            "positions, False",
            "sync",
            "reset",
            "callback",
        ),
        *("train again", "commit", "save"),
    ]


def test_nobody_comes_in_after_the_last_batch_of_an_epoch():
    with _Job([(0, 3), (1, 3), (1, 3), (0, 4)]) as job:
        job.at_end = True
        assert _train(_State(job.did), job.did, until=2) == "trained"
    # At the second commit, wherever it is.
    assert job.did == [
        *("sync", "train", "commit", "save", "commit", "save"),
        *("pause", "write", "admit", "positions, False", "sync", "reset"),
        "train again",
    ]


def test_who_comes_in_needs_the_state_of_another():
    with _Job([(0, 4)], waits=True) as job:
        job.root_has_come_in = True
        with pytest.raises(kr.errors.UnavailableError, match="were lost"):
            _train(_State(job.did), job.did, until=1)
    assert job.did == ["admit", "positions, True", "sync"]


def test_a_loss_moves_no_state():
    with _Job([(0, 3), (0, 5), (0, 5), (0, 5)]) as job:
        assert _train(_State(job.did), job.did, until=2) == "trained"
    assert job.did == [
        *("sync", "train", "commit", "save"),
        *("pause", "reset", "train again", "commit", "save"),
    ]


def test_who_waits_comes_in_first():
    with _Job([(0, 4), (0, 4)], waits=True) as job:
        assert _train(_State(job.did), job.did, until=1) == "trained"
    assert job.did == [
        *("admit", "positions, True", "sync", "reset"),
        *("train again", "commit", "save"),
    ]


@pytest.mark.parametrize("is_over", [False, True])
def test_steps_that_end_an_epoch_leave_the_commit_to_its_end(is_over):
    model = _model()
    model.compile("sgd", "mse", steps_per_execution=2, jit_compile=False)
    did = []
    state = mock.Mock(commit=lambda: did.append("commit"))
    callback = kr.elastic.CommitStateCallback(state)
    callback.set_model(model)
    callback.on_train_begin()
    with mock.patch.object(positions, "are_of_no_loop", lambda: is_over):
        callback.on_train_batch_end(1)
        callback.on_epoch_end(0)
    assert did == ["commit"] * (1 if is_over else 2)
