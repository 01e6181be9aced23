"""Docstrings of public functions stand on their own."""

import inspect
import re

import pytest

import keras_ring as kr
from keras_ring.core.docstrings import described, fill

PUBLIC = [
    name
    for name in kr.__all__
    if callable(getattr(kr, name)) and not inspect.isclass(getattr(kr, name))
]


def test_a_description_is_filled_in():
    text = fill("Args:\n    name: {{name}}\n    x: A tensor.")
    lines = text.splitlines()
    assert lines[1].startswith("    name: String, the same on all ranks.")
    assert lines[2].startswith("        ")
    assert lines[-1] == "    x: A tensor."
    assert max(map(len, lines)) <= 80


def test_in_the_middle_of_a_text_the_indent_stays():
    lines = fill("Args:\n    x: A tensor.\n        {{movable}}").splitlines()
    assert lines[2].startswith("        Of a dtype")
    assert all(line.startswith("        ") for line in lines[2:])


def test_one_that_there_is_not_is_an_error():
    def function():
        """{{nothing}}"""

    with pytest.raises(KeyError, match="nothing"):
        described(function)


@pytest.mark.parametrize("name", PUBLIC)
def test_all_arguments_are_described(name):
    function = getattr(kr, name)
    doc = inspect.getdoc(function)
    assert "{{" not in doc
    for each in inspect.signature(function).parameters:
        assert re.search(rf"^    \**{each}: ", doc, re.M), each


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_is_described_elsewhere_in_keras_ring(name):
    doc = inspect.getdoc(getattr(kr, name))
    for other in re.findall(r"As in `([\w.]+)`", doc):
        assert other.startswith(("tf.", "keras.")), other
