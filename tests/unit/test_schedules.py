"""The warm-up, as a schedule."""

import keras
import numpy as np
import pytest

import keras_ring as kr


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


def test_of_a_number():
    schedule = kr.schedules.Warmup(0.8, 4)
    np.testing.assert_allclose(
        rates(schedule, range(6)), [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    )
    np.testing.assert_allclose(
        rates(kr.schedules.Warmup(0.8, 0), range(2)), [0.8, 0.8]
    )


def test_of_a_schedule():
    decay = keras.optimizers.schedules.ExponentialDecay(0.8, 10, 0.5)
    schedule = kr.schedules.Warmup(decay, 5)
    expected = [
        float(decay(step)) * min(1.0, (step + 1) / 5) for step in range(20)
    ]
    np.testing.assert_allclose(rates(schedule, range(20)), expected, rtol=1e-6)


def test_in_an_optimizer(tmp_path):
    schedule = kr.schedules.Warmup(
        keras.optimizers.schedules.CosineDecay(0.5, 100), 10
    )
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    x = np.ones((12, 2), "float32")
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    np.testing.assert_allclose(
        float(model.optimizer.learning_rate), float(schedule(3)), rtol=1e-6
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.optimizer._learning_rate
    assert isinstance(again, kr.schedules.Warmup)
    assert again.get_config() == schedule.get_config()
    assert rates(again, range(15)) == rates(schedule, range(15))


def test_config_of_a_number():
    schedule = kr.schedules.Warmup(0.8, 4, name="mine")
    config = schedule.get_config()
    assert config == {"schedule_or_lr": 0.8, "warmup_steps": 4, "name": "mine"}
    again = kr.schedules.Warmup.from_config(config)
    assert rates(again, range(6)) == rates(schedule, range(6))


@pytest.mark.parametrize("steps", [-1, 2.5, None])
def test_steps_that_are_none(steps):
    with pytest.raises(ValueError, match="`warmup_steps` must be an integer"):
        kr.schedules.Warmup(0.1, steps)
