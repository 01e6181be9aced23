"""What the variables of `--auto` may say."""

import pytest

from keras_ring.core import start_checks
from keras_ring.protocol import auto_options, contract
from keras_ring.unchanged.settings import AutoSettings, settings_of

PREFIX = "KERAS_RING_AUTO"


def _settings(auto, **others):
    variables = {f"{PREFIX}_{name}": text for name, text in others.items()}
    return settings_of({PREFIX: auto, "HOME": "/", **variables})


def test_what_is_asked_for():
    assert settings_of({}) is None
    assert _settings("") is None
    assert _settings("0", BATCH="per-rank") is None
    assert _settings("1") == AutoSettings()
    assert _settings("1") == AutoSettings(False, False, "keep", 0, 300)
    # Empty is not set.
    unset = dict.fromkeys(("BATCH", "LEARNING_RATE", "WARMUP_EPOCHS"), "")
    assert _settings("explain", **unset) == AutoSettings(explain=True)
    assert _settings("1", BATCH="global") == AutoSettings()
    assert _settings(
        "1", BATCH="per-rank", LEARNING_RATE="sqrt", WARMUP_EPOCHS="5"
    ) == AutoSettings(False, True, "sqrt", 5)
    assert _settings("1", BATCH="per-rank") == AutoSettings(per_rank=True)
    assert _settings("1", WAIT="3600") == AutoSettings(wait=3600)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"auto": "yes"}, "AUTO is 'yes': expected 0, 1 or explain"),
        (
            {"auto": "1", "BATCH": "rank"},
            "AUTO_BATCH is 'rank': expected global or per-rank",
        ),
        (
            {"auto": "1", "BATCH": "per-rank", "LEARNING_RATE": "cube"},
            "AUTO_LEARNING_RATE is 'cube': expected keep, linear or sqrt",
        ),
        *(
            (
                {"auto": "1", "BATCH": "per-rank", "WARMUP_EPOCHS": epochs},
                f"AUTO_WARMUP_EPOCHS is '{epochs}': expected an integer",
            )
            # Python reads the digit of another script, and ranks may not.
            for epochs in ("-1", "1.5", " 1", "٣", "9" * 5000)
        ),
        *(
            (
                {"auto": "1", "WAIT": seconds},
                f"AUTO_WAIT is '{seconds}': expected an integer from 1",
            )
            for seconds in ("0", "-1", "never")
        ),
        # What would do nothing.
        (
            {"auto": "1", "LEARNING_RATE": "linear"},
            "AUTO_LEARNING_RATE is 'linear': expected keep, as "
            "KERAS_RING_AUTO_BATCH is 'global'",
        ),
        (
            {"auto": "1", "BATCH": "per-rank", "WARMUP_EPOCHS": "3"},
            "AUTO_WARMUP_EPOCHS is '3': expected 0, as "
            "KERAS_RING_AUTO_LEARNING_RATE is 'keep'",
        ),
    ],
)
def test_what_is_refused(variables, text):
    with pytest.raises(ValueError) as refused:
        _settings(**variables)
    assert str(refused.value).startswith(f"KERAS_RING_{text}")
    assert len(str(refused.value).splitlines()) == 1


def test_the_variables_have_an_effect():
    names = {
        value
        for name, value in vars(contract).items()
        if name == "AUTO" or name.startswith("AUTO_")
    }
    assert names == set(auto_options.OPTIONS)
    told = start_checks.ignored_variables(
        {**dict.fromkeys(names, "1"), f"{PREFIX}_BACH": "1"}, []
    )
    assert told == (
        f"Variables without effect: {PREFIX}_BACH (is it {PREFIX}_BATCH?)"
    )
