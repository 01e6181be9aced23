"""Functions that are put around those of Keras."""

import functools
from pathlib import Path

import keras
import pytest

from keras_ring.keras.fit import one_writer, terminate_on_nan
from keras_ring.keras.lanes import compiler_choice
from keras_ring.keras.lanes.patching import patch_once, patches
from keras_ring.keras.model import synchronized_normalization
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.keras.optimizer.optimizer import DistributedOptimizer

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


def test_a_function_is_replaced_once(owner):
    for _ in range(2):
        patch_once(owner, "value", adding(10), "more")
    assert owner().value() == 11


def test_once_for_each_purpose(owner):
    for _ in range(2):
        patch_once(owner, "value", adding(10), "more")
        patch_once(owner, "value", adding(200), "much more")
    assert owner().value() == 211
    assert len([each for each in patches() if "Owner.value: " in each]) >= 2


def test_a_class_that_inherits_has_its_own(owner):
    class Heir(owner):
        pass

    patch_once(owner, "value", adding(10), "more")
    patch_once(Heir, "value", adding(200), "more")
    assert owner().value() == 11
    assert Heir().value() == 211


def test_one_that_was_taken_back_is_replaced_again(owner):
    plain = owner.value
    patch_once(owner, "value", adding(10), "more")
    owner.value = plain
    patch_once(owner, "value", adding(10), "more")
    assert owner().value() == 11


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
            if row.endswith(f"| {purpose} |")
            and (f"`{owner}`" in row or name in row)
        ], each
