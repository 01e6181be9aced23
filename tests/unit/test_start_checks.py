"""What init() says to those that have started it in another way."""

import pytest

from keras_ring.core import installs, job, native, start_checks
from keras_ring.errors import ConfigurationError

KNOWN = ["KERAS_RING_FUSION_THRESHOLD", "KERAS_RING_STALL_CHECK_TIME"]


def test_variables_without_effect_are_named_with_what_was_meant():
    text = start_checks.ignored_variables(
        {
            "KERAS_RING_FUSION_TRESHOLD": "1",
            "KERAS_RING_FUSION_THRESHOLD": "1",
            "KERAS_RING_ERROR_FILE": "/x",
            "KERAS_RING_TEST_SEED": "1",
            "KERAS_RING_QQQQ": "1",
            "HOROVOD_FUSION_THRESHOLD": "1",
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
            "HOROVOD_NUM_NCCL_STREAMS": "1",
        },
        KNOWN,
    )
    assert text == (
        "Variables without effect: "
        "HOROVOD_FUSION_THRESHOLD (use KERAS_RING_FUSION_THRESHOLD), "
        "HOROVOD_NUM_NCCL_STREAMS (none here), "
        "HOROVOD_STALL_CHECK_TIME_SECONDS (use KERAS_RING_STALL_CHECK_TIME), "
        "KERAS_RING_FUSION_TRESHOLD (is it KERAS_RING_FUSION_THRESHOLD?), "
        "KERAS_RING_QQQQ"
    )
    assert start_checks.ignored_variables({"HOME": "/"}, KNOWN) == ""


def test_what_is_named_in_place_of_horovods_is_known():
    known = start_checks.known_variables()
    for ours in start_checks._HOROVOD.values():
        assert "KERAS_RING_" + ours.partition("=")[0] in known
    every = dict.fromkeys(known, "1")
    assert start_checks.ignored_variables(every, known) == ""


@pytest.mark.parametrize(
    ("module", "check"),
    [(installs, "run_before_start"), (job, "rank_settings")],
)
def test_init_asks(monkeypatch, module, check):
    """Before anything is started."""

    def refuse(*_):
        raise ConfigurationError("refused")

    def not_started(*_):
        raise AssertionError("started")

    monkeypatch.setattr(module, check, refuse)
    monkeypatch.setattr(native.core(), "init", not_started)
    with pytest.raises(ConfigurationError, match="refused"):
        job.init()


def test_init_names_variables_without_effect(monkeypatch, caplog):
    monkeypatch.setenv("KERAS_RING_STAL_CHECK_TIME", "5")
    monkeypatch.setenv("KERAS_RING_SIZE", "1")
    job.init()
    job.shutdown()
    assert "is it KERAS_RING_STALL_CHECK_TIME?" in caplog.text
