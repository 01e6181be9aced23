"""What is said once of a model, with the line of the program."""

import types

import pytest

from keras_ring.core import notices
from keras_ring.unchanged import script


@pytest.fixture(autouse=True)
def rank_0(monkeypatch):
    rank = types.SimpleNamespace(rank=lambda: 0)
    monkeypatch.setattr(notices, "topology", rank)
    monkeypatch.setattr(notices, "_said", set())


def test_a_line_names_the_first_location_and_comes_once(capsys):
    for location in (" (train.py:3)", " (train.py:9)"):
        notices.say(f"model 'm'{location}: divided", location=location)
    notices.say("model 'm': divided")
    notices.say("model 'n' (train.py:9): divided", location=" (train.py:9)")
    assert capsys.readouterr().err.splitlines() == [
        "keras_ring: model 'm' (train.py:3): divided",
        "keras_ring: model 'n' (train.py:9): divided",
    ]


def test_the_location_is_the_line_of_the_program():
    assert script.location().startswith(" (test_said.py:")
