"""What messages of `--auto` quote."""

import pytest
import tensorflow as tf

from keras_ring.unchanged.advice import summary


@tf.function(autograph=True)
def traced(x):
    if tf.reduce_sum(x) > 0:
        return tf.reshape(x, (7, 2))
    return x


def test_of_a_traced_function_it_is_what_was_wrong():
    with pytest.raises(ValueError, match="in user code:") as raised:
        traced(tf.ones([3]))
    assert "reshape" in summary(raised.value).lower()


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("no\nframe 1\nframe 2", "no"), ("\n one \n", "one")],
)
def test_else_it_is_the_first_line(text, line):
    assert summary(ValueError(text)) == line
