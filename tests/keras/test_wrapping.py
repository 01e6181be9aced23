"""Functions that are put around those of Keras."""

import functools
import inspect
import itertools
import math
import types
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from tensorflow.python.autograph.core.ag_ctx import control_status_ctx

from keras_ring.keras.fit import one_writer, terminate_on_nan
from keras_ring.keras.lanes import compiler_choice, wrapping
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.lanes.wrapping import patches
from keras_ring.keras.model import synchronized_normalization
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.keras.optimizer.optimizer import DistributedOptimizer
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.unchanged import script

ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs/architecture.md"


def adding(number):
    def around(function):
        @functools.wraps(function)
        def more(self):
            return function(self) + number

        return more

    return around


@pytest.fixture
def owner():
    class Owner:
        def value(self):
            return 1

    return Owner


def wrap(owner, number, ring=Ring.JOB):
    wrapping.wrap(
        owner, "value", adding(number), ring=ring, purpose=f"{number}"
    )


def test_a_function_is_wrapped_once(owner):
    for _ in range(2):
        wrap(owner, 10)
    assert owner().value() == 11


def test_once_for_each_purpose(owner):
    for _ in range(2):
        wrap(owner, 10)
        wrap(owner, 200)
    assert owner().value() == 211
    assert len([each for each in patches() if "Owner.value: " in each]) >= 2


def test_a_class_that_inherits_has_its_own(owner):
    class Heir(owner):
        pass

    wrap(owner, 10)
    wrap(Heir, 200)
    assert owner().value() == 11
    assert Heir().value() == 211
    wrap(owner, 3000)
    assert Heir().value() == 3211


def test_one_that_was_taken_back_is_wrapped_again(owner):
    plain = owner.value
    wrap(owner, 10)
    owner.value = plain
    wrap(owner, 10)
    assert owner().value() == 11


def test_one_that_fails_may_be_tried_again(owner):
    def fail(function):
        raise KeyError("no such thing")

    wrap(owner, 10)
    with pytest.raises(KeyError):
        wrapping.wrap(owner, "value", fail, ring=Ring.JOB, purpose="200")
    wrap(owner, 200)
    assert owner().value() == 211


def noting(ring, seen):
    def around(function):
        @functools.wraps(function)
        def note(self):
            seen.append(ring)
            return function(self)

        return note

    return around


@pytest.mark.parametrize("rings", itertools.permutations(list(Ring)[:3]))
def test_rings_decide_the_order(owner, rings):
    seen = []
    for ring in rings:
        around = noting(ring, seen)
        wrapping.wrap(owner, "value", around, ring=ring, purpose=ring.name)
    assert owner().value() == 1
    assert seen == sorted(rings)
    assert [ring for ring, _ in wrapping.order_of(owner.value)] == seen


def test_in_one_ring_the_later_one_is_around(owner):
    seen = []
    for number in range(3):
        around = noting(number, seen)
        wrapping.wrap(
            owner, "value", around, ring=Ring.JOB, purpose=f"{number}th"
        )
    owner().value()
    assert seen == [2, 1, 0]


@pytest.mark.parametrize("is_named_alike", [True, False])
def test_a_wrapper_of_the_program_stays_outside(owner, is_named_alike):
    seen = []
    wrapping.wrap(
        owner,
        "value",
        noting("observed", seen),
        ring=Ring.OBSERVE,
        purpose="observed",
    )
    ours = owner.value
    theirs = noting("theirs", seen)(ours)
    if not is_named_alike:
        # It has not been made by `functools.wraps`.
        vars(theirs).clear()
    owner.value = theirs
    wrapping.wrap(
        owner,
        "value",
        noting("compared", seen),
        ring=Ring.COMPARE,
        purpose="compared",
    )
    owner().value()
    if is_named_alike:
        assert seen == ["theirs", "compared", "observed"]
        owner.value = ours
        seen.clear()
        owner().value()
        assert seen == ["compared", "observed"]
    else:
        assert seen == ["compared", "theirs", "observed"]


def test_it_looks_like_the_function(owner):
    def value(self, first, *, second=2):
        """Returns a sum."""
        return first + second

    value.mark = "a mark"
    owner.value = value
    wrap(owner, 10)
    assert owner.value.__name__ == "value"
    assert owner.value.__module__ == __name__
    assert owner.value.__doc__ == "Returns a sum."
    assert owner.value.mark == "a mark"
    assert str(inspect.signature(owner.value)) == "(self, first, *, second=2)"
    assert inspect.signature(owner().value).parameters.keys() == {
        "first",
        "second",
    }


def test_a_module_is_replaced_as_a_whole():
    owner = types.SimpleNamespace(__name__="<locals>", inner=math)

    def around(module):
        before = vars(module)["floor"]
        return types.SimpleNamespace(
            **{**vars(module), "floor": lambda x: before(x) + 10}
        )

    for purpose in ("more", "still more", "more"):
        wrapping.wrap(owner, "inner", around, ring=Ring.JOB, purpose=purpose)
    assert owner.inner.floor(1.5) == 21
    assert owner.inner.ceil(1.5) == 2
    assert math.floor(1.5) == 1


def status(*_):
    return control_status_ctx().status


# The module decides whether AutoGraph converts what is called in a trace.
@pytest.mark.parametrize("module", ["keras.src.models.model", "program"])
@pytest.mark.parametrize("is_converted", [True, False])
def test_autograph_does_what_it_does_with_the_wrapper(
    owner, module, is_converted
):
    def around(function):
        @functools.wraps(function)
        def branch(self):
            # No error only if AutoGraph has converted this.
            try:
                is_graph = True if tf.constant(True) else False
            except tf.errors.OperatorNotAllowedInGraphError:
                is_graph = None
            return is_graph is not None, status()

        return branch if is_converted else do_not_convert(branch)

    owner.value.__module__ = module

    @tf.function
    def plain(wrapper):
        seen.append(wrapper())
        return tf.constant(0)

    seen = []
    wrapped = around(owner.value)
    plain(lambda: wrapped(None))
    wrapping.wrap(owner, "value", around, ring=Ring.JOB, purpose="branches")
    plain(lambda: owner.value(None))
    assert seen[0] == seen[1]
    assert seen[0][0] == (is_converted and module == "program")


def test_the_line_of_a_program_is_found_through_a_hook():
    seen = []

    def around(function):
        def note():
            seen.append(script.is_called_by_program())
            return function()

        return note

    owner = types.SimpleNamespace(__name__="<locals>", ask=lambda: 1)
    wrapping.wrap(owner, "ask", around, ring=Ring.UNCHANGED, purpose="asked")
    owner.ask()
    assert seen == [True]
    assert wrapping.__name__ == script._WRAPPING


def test_the_documentation_has_all(ring):
    for module in (
        one_writer,
        terminate_on_nan,
        synchronized_normalization,
        reduction_guard,
    ):
        module.install()
    compiler_choice.install(lambda: True)
    DistributedOptimizer("sgd")
    inner = keras.optimizers.SGD()
    DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner))
    rows = [
        line
        for line in ARCHITECTURE.read_text().splitlines()
        if line.startswith("| ")
    ]
    found = [each for each in patches() if "<locals>" not in each]
    assert len(found) > 30
    for each in found:
        function, _, purpose = each.partition(": ")
        *_, owner, name = function.split(".")
        assert [
            row
            for row in rows
            if f"{purpose} (" in row and (f"`{owner}`" in row or name in row)
        ], each
