"""Events, the tables that bind them, and what subscribes fit together."""

import ast
import re
from collections import defaultdict

import pytest

from tests.lint import event_tables

EVENTS = event_tables.events()
SUBSCRIPTIONS = event_tables.subscriptions()


def test_an_event_is_named_as_its_constant():
    assert len(EVENTS) > 40
    for constant, (name, when) in EVENTS.items():
        assert constant == name.upper()
        assert not when.endswith(".")


@pytest.mark.parametrize("module", event_tables.LANES.values())
def test_a_lane_binds_each_event_or_says_why_not(module):
    bound = event_tables.lane(module)
    assert bound.keys() == EVENTS.keys()
    assert all(bound.values())


def test_an_event_is_bound_in_one_table_of_those_that_both_lanes_use():
    alike = event_tables.table("keras_events").keys()
    # A framework may have more functions of an event of Python.
    for name in ("python_events", *event_tables.FRAMEWORKS):
        assert not alike & event_tables.table(name).keys(), name


def test_each_event_has_a_subscriber():
    assert {each.event for each in SUBSCRIPTIONS} == EVENTS.keys()


def test_a_ring_is_one_that_there_is():
    assert {each.ring for each in SUBSCRIPTIONS} <= {*event_tables.rings()}


def orders(module, without):
    """Returns the wrappers of each function that has several, from outside.

    Args:
        module: The module of a lane's table.
        without: Paths of files that subscribe in other programs.
    """
    by_function = defaultdict(list)
    for event, functions in event_tables.lane(module).items():
        for function in functions if isinstance(functions, list) else ():
            by_function[function] += [
                each
                for each in SUBSCRIPTIONS
                if each.event == event and each.path not in without
            ]
    rings = event_tables.rings()
    return {
        event_tables.shown(function): [
            f"{each.ring} {each.path}"
            for each in sorted(found, key=lambda one: rings.index(one.ring))
        ]
        for function, found in by_function.items()
        if len(found) > 1
    }


ORDERS = {
    "`Model.fit`": [
        "JOIN keras/elastic/joined_fit.py",
        "COMPARE keras/optimizer/divergence.py",
        "UNCHANGED unchanged/training.py",
        "WEIGHT keras/optimizer/weighted_losses.py",
        "JOB keras/fit/own_files.py",
        "OBSERVE keras/fit/watching.py",
    ],
    "`CallbackList`: `on_train_begin`, `on_train_end`, `on_epoch_begin`, "
    "`on_epoch_end`, `on_train_batch_begin`, `on_train_batch_end`, "
    "`on_test_begin`, `on_test_end`, `on_predict_begin`, `on_predict_end`": [
        "JOB keras/elastic/joined_fit.py",
        "OBSERVE keras/fit/observed_fit.py",
    ],
    "`Model.train_on_batch`": [
        "UNCHANGED unchanged/single_batches.py",
        "WEIGHT keras/optimizer/weighted_losses.py",
    ],
    "`Model`: `save`, `save_weights`": [
        "UNCHANGED unchanged/files.py",
        "OBSERVE keras/fit/observed_fit.py",
    ],
    "methods that write of `BackupAndRestore`, `CSVLogger`, `ModelCheckpoint`, "
    "`OrbaxCheckpoint`, `ProgbarLogger`, `RemoteMonitor`, `TensorBoard`": [
        # The first to subscribe is inside.
        "JOB keras/fit/one_writer.py",
        "JOB keras/fit/one_writer.py",
    ],
}
# The modules of the hooks of `--auto`.
ON_TENSORFLOW, ON_ANY = "tensorflow_hooks", "portable/portable_hooks"
OF_KERAS_3 = {
    "`TFEpochIterator.__init__`": [
        "UNCHANGED unchanged/batches.py",
        "JOB keras/data/dealt_batches.py",
    ],
    "`BatchNormalization._moments`": [
        "UNCHANGED unchanged/training.py",
        "JOB keras/model/synchronized_normalization.py",
    ],
}
OF_KERAS_2 = {
    "`DataHandler.__init__`": [
        "UNCHANGED unchanged/batches.py",
        "JOB keras/data/dealt_batches.py",
    ],
}


def hooked_by(module):
    """Returns the paths whose hooks a module of `--auto` installs."""
    tree = ast.parse(
        (event_tables.PACKAGE / f"unchanged/{module}.py").read_text()
    )
    return {
        f"{node.module.replace('.', '/')}/{each.name}.py".partition("/")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }


def test_the_rings_give_these_orders():
    others = hooked_by(ON_ANY) - hooked_by(ON_TENSORFLOW)
    assert orders("keras3_events", others) == ORDERS | OF_KERAS_3
    assert orders("keras2_events", others) == ORDERS | OF_KERAS_2


def test_files_of_one_ring_never_meet_in_one_function():
    """A program has the hooks for TensorFlow or those for any framework."""
    on_tensorflow, on_any = hooked_by(ON_TENSORFLOW), hooked_by(ON_ANY)
    assert "unchanged/training.py" in on_tensorflow - on_any
    assert "unchanged/portable/training.py" in on_any - on_tensorflow
    for others in (on_any - on_tensorflow, on_tensorflow - on_any):
        for module in event_tables.LANES.values():
            for found in orders(module, others).values():
                files = dict.fromkeys(found)
                rings = [each.partition(" ")[0] for each in files]
                assert len(rings) == len(set(rings)), found


def test_what_is_shown_of_a_function():
    assert event_tables.shown("keras:Model.fit") == "`Model.fit`"
    assert event_tables.shown("os:mkdir, link") == "`os`: `mkdir`, `link`"
    assert (
        event_tables.shown("tensorflow:io.gfile.copy") == "`tf.io.gfile.copy`"
    )
    assert event_tables.shown("keras.src.a.b:get_loss") == "`get_loss`"
    assert event_tables.shown("calls of it") == "calls of it"


def test_a_subscription_is_found():
    (found,) = event_tables.subscriptions_in(
        "fit/file.py",
        '_WHY = "it is seen"\n'
        "hooks.subscribe(events.FIT_RUNS, f, ring=Ring.JOB, purpose=_WHY)\n",
    )
    assert found == event_tables.Subscription(
        "fit/file.py", "FIT_RUNS", "JOB", "it is seen"
    )


def test_a_purpose_completes_a_sentence():
    for each in SUBSCRIPTIONS:
        assert re.match(r"[a-z`X]", each.purpose), each
        assert not each.purpose.endswith(".")
