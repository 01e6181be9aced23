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
        ("folders and modules at the top", 19),
        ("arrows between these", 50),
        ("late imports", 3),
        ("context variables", 4),
        ("files that import TensorFlow outside of tensorflow/", 40),
        ("files that change Keras outside of keras/lanes", 0),
    ],
)
def test_a_figure_is_in_its_bound(found, what, limit):
    assert min(limit, 1) <= found[what] <= limit


@pytest.mark.parametrize(
    "line",
    [
        'patch_once(keras.Model, "fit", _watched, _PURPOSE)',
        "steps.hook_means(counted.of_share, _PURPOSE)",
        'with replaced(keras.utils, {"save_img": save}):',
        "from keras_ring.keras.lanes.wrapping import wrap",
        'wrapping.wrap(keras.Model, "fit", _watched)',
        'setattr(keras.Model, "fit", watched)',
        'setattr(\n    keras.Model, "fit", watched\n)',
        "    keras.Model.fit = watched",
    ],
)
def test_a_change_of_keras_is_found(line):
    assert figures.changes_keras(f"import keras\n\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "hooks.subscribe(events.FIT_RUNS, f, ring=Ring.JOB, purpose=_PURPOSE)",
        "logs = _replaced(logs, values)",
        "    sys.excepthook_before(error)",
        "if keras.Model.fit == before:",
    ],
)
def test_other_lines_change_nothing(line):
    assert not figures.changes_keras(f"import keras\n\n{line}\n")


def test_docstrings_have_a_subject_and_a_verb(found):
    (what,) = [each for each in found if each.startswith("docstrings")]
    assert found[what] == 0
