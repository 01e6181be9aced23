"""How the soak tells growth from noise."""

import pytest

from tests.multiprocess.failures.soak import Sample, growth, judge


def samples(per_epoch=0.0, descriptors=10, threads=20, noise=1.0):
    """Returns those of 100 epochs, the last with so many descriptors."""
    return [
        Sample(
            epoch,
            300.0 + per_epoch * epoch + noise * (epoch % 2),
            descriptors if epoch > 60 else 10,
            threads if epoch > 60 else 20,
        )
        for epoch in range(100)
    ]


def test_growth_is_per_epoch():
    assert growth(samples(0.5)) == pytest.approx(0.5, rel=0.01)


def test_the_warm_up_does_not_count():
    found = samples()
    for one in found[:15]:
        one.memory = 10.0
    assert growth(found) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(
    ("grown", "allowed", "flat"),
    [
        ({}, 0.0, True),
        ({"per_epoch": 0.5}, 0.0, False),
        ({"per_epoch": 0.5}, 0.5, True),
        ({"per_epoch": 0.5}, 0.3, False),
        ({"descriptors": 11}, 0.0, False),
        ({"threads": 21}, 0.0, False),
    ],
)
def test_judge(grown, allowed, flat):
    assert judge(samples(**grown), allowed)[1] == flat


def test_who_never_trained_is_not_flat():
    assert judge([], 0.0) == ("it never trained", False)
