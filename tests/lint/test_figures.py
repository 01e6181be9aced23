"""What the structure has gained is not lost again."""

from pathlib import Path

import pytest

from tests.lint import figures

PACKAGE = Path(__file__).resolve().parents[2] / "keras_ring"


@pytest.fixture(scope="module")
def found():
    return figures.figures(PACKAGE)


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("folders and modules at the top", 18),
        ("arrows between these", 50),
        ("late imports", 3),
        ("context variables", 4),
        ("files that import TensorFlow outside of tensorflow/", 90),
        ("files that change Keras outside of keras/lanes", 28),
    ],
)
def test_a_figure_is_in_its_bound(found, what, limit):
    assert 0 < found[what] <= limit


def test_docstrings_have_a_subject_and_a_verb(found):
    (what,) = [each for each in found if each.startswith("docstrings")]
    assert found[what] == 0
