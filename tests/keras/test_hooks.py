"""Subscriptions to events, in the Keras of the program."""

import functools
import sys
import types

import keras
import pytest

from keras_ring.keras.lanes import binding, events, hooks, optimizer_events
from keras_ring.keras.lanes.binding import Absent, Bound
from keras_ring.keras.lanes.events import Event
from keras_ring.keras.lanes.rings import Ring

EVENTS = [each for each in vars(events).values() if isinstance(each, Event)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: each.name)
def test_what_an_event_is_bound_to_is_there(event):
    found = hooks.points(event)
    # There is no Keras 2 here whose optimizers could be bound, and Keras
    # computes with TensorFlow.
    may_be_empty = event in (
        events.LOSS_MASKED,
        events.SCALED_PAIRS_APPLIED,
        events.SCALED_STATE_APPLIED,
        events.BATCHES_READ,
        events.STEP_MADE,
        events.BATCHES_MADE,
        events.MODEL_BUILT,
        events.STEP_RUN,
        events.LOSS_COMPUTED,
        events.OPTIMIZER_MADE,
    )
    assert found or may_be_empty
    for point in found:
        assert hasattr(point.owner, point.name)


@pytest.fixture
def owner(monkeypatch):
    owner = types.SimpleNamespace(
        __name__="<locals>", first=lambda: ["first"], second=lambda: ["second"]
    )
    monkeypatch.setitem(sys.modules, "bound_here", owner)
    # That of the test before.
    binding._named.cache_clear()
    return owner


def bind(monkeypatch, *bound):
    event = Event("tried", "it is tried")
    table = {event: bound or Absent("there is nothing")}
    monkeypatch.setattr(hooks, "_TABLE", table)
    return event


def noting(function):
    @functools.wraps(function)
    def note():
        return ["noted", *function()]

    return note


def subscribe(event, **options):
    hooks.subscribe(event, noting, ring=Ring.JOB, purpose="noted", **options)


def test_all_functions_are_wrapped_once(owner, monkeypatch):
    event = bind(monkeypatch, Bound("bound_here:first, second"))
    for _ in range(2):
        subscribe(event)
    assert owner.first() == ["noted", "first"]
    assert owner.second() == ["noted", "second"]


def test_one_of_them_alone(owner, monkeypatch):
    event = bind(monkeypatch, Bound("bound_here:first, second"))
    _, second = hooks.points(event)
    subscribe(event, at=second)
    assert owner.first() == ["first"]
    assert owner.second() == ["noted", "second"]


def test_a_lane_adapts_a_subscriber(owner, monkeypatch):
    def adapt(number):
        return lambda function: lambda: [number, *function()]

    event = bind(monkeypatch, Bound("bound_here:first", adapt=adapt))
    hooks.subscribe(event, 7, ring=Ring.JOB, purpose="numbered")
    assert owner.first() == [7, "first"]


def test_an_event_that_a_lane_does_not_have(owner, monkeypatch):
    event = bind(monkeypatch)
    assert hooks.points(event) == []
    subscribe(event)
    assert owner.first() == ["first"]


def test_a_program_may_have_the_keras_of_another_lane(monkeypatch):
    (point,) = optimizer_events._scaled_updates()
    assert point.owner is keras.optimizers.LossScaleOptimizer
    monkeypatch.setattr(keras, "__version__", "2.15.0")
    assert not list(optimizer_events._scaled_updates())
