import pytest

from keras_ring.errors import ConfigurationError
from keras_ring.launch.ray import workers


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 5.0), ("", 5.0), ("0.5", 0.5), ("never", None)]
)
def test_how_long_the_others_get_after_a_failure(text, seconds):
    environment = {} if text is None else {"KERAS_RING_FAILURE_WAIT": text}
    assert workers.failure_wait(environment) == seconds


def test_a_limit_that_makes_no_sense():
    with pytest.raises(ConfigurationError, match="FAILURE_WAIT is '-1': exp"):
        workers.failure_wait({"KERAS_RING_FAILURE_WAIT": "-1"})
