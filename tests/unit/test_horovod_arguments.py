"""Which calls of programs written for Horovod mean what."""

import inspect

import pytest

import keras_ring as kr
from keras_ring.core import gpus, horovod_arguments
from keras_ring.core.horovod_arguments import takes_horovods


@takes_horovods(
    "op prescale_factor postscale_factor compression name process_set",
    "average device_dense device_sparse compression op prescale_factor "
    "postscale_factor name process_set",
    "name average prescale_factor postscale_factor op compression",
)
def reduce(tensor, op=kr.Average, *, name=None, **settings):
    """Stands for a function of ours."""
    return tensor, op, {"name": name, **settings}


@takes_horovods("name device_dense num_groups")
def wrap(optimizer, op=kr.Average, *, groups=None):
    return optimizer, op, groups


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(horovod_arguments.notices, "warn", lines.append)
    horovod_arguments._say_once.cache_clear()
    return lines


FP16 = kr.Compression.fp16


@pytest.mark.parametrize(
    "args, kwargs, op, settings",
    [
        ((), {}, kr.Average, {}),
        ((kr.Sum,), {}, kr.Sum, {}),
        ((), {"op": None}, kr.Average, {}),
        ((kr.Sum, 0.5), {}, kr.Sum, {"prescale_factor": 0.5}),
        ((False,), {}, kr.Sum, {}),
        ((True,), {}, kr.Average, {}),
        ((None, "", "", FP16, kr.Max), {}, kr.Max, {"compression": FP16}),
        (("n",), {}, kr.Average, {"name": "n"}),
        (("n", False), {}, kr.Sum, {"name": "n"}),
        ((None, True, 0.5), {}, kr.Average, {"prescale_factor": 0.5}),
        ((), {"average": False}, kr.Sum, {}),
        ((), {"average": None, "op": kr.Min}, kr.Min, {}),
    ],
)
def test_orders_are_told_by_types(said, args, kwargs, op, settings):
    found = reduce("x", *args, **kwargs)
    names = {n: v for n, v in found[2].items() if v is not None}
    assert (found[0], found[1], names) == ("x", op, settings)
    assert said == []


def test_names_of_required_arguments():
    assert reduce(value="x")[0] == "x"


@pytest.mark.parametrize(
    "call",
    [
        lambda: reduce("x", average=True, op=kr.Sum),
        lambda: reduce("x", kr.Sum, average=True),
        lambda: wrap("o", num_groups=2, groups=3),
    ],
)
def test_two_values_for_one_thing(call):
    with pytest.raises(ValueError, match="say the same; give one of them"):
        call()
    with pytest.raises(TypeError, match=r"`reduce` got two values for `name`"):
        reduce("x", "n", name="m")


def test_what_has_no_effect_is_said_once(said):
    for _ in range(2):
        assert wrap("o", "Distributed", "/gpu:0", 3) == ("o", kr.Average, 3)
    assert len(said) == 2
    assert "`name='Distributed'` of `wrap` has no effect" in said[0]
    assert "`device_dense='/gpu:0'` of `wrap` has no effect" in said[1]
    assert wrap("o", None, "", 0) == ("o", kr.Average, None)
    assert len(said) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: reduce(),
        lambda: wrap("o", banana=3),
        lambda: wrap("o", {}, {}, {}, {}),
    ],
)
def test_what_fits_nowhere_is_an_error_of_python(call):
    with pytest.raises(TypeError):
        call()


def test_signatures_are_ours():
    assert list(inspect.signature(kr.allreduce).parameters)[:2] == [
        "tensor",
        "op",
    ]
    assert "device_dense" not in str(inspect.signature(kr.DistributedOptimizer))


def test_builds(capsys, monkeypatch):
    monkeypatch.delenv("KERAS_RING_COLLECTIVE", raising=False)
    assert kr.mpi_built()
    for name in (
        *("mpi_enabled", "mpi_threads_supported"),
        *("gloo_built", "gloo_enabled", "rocm_built", "ccl_built"),
        "ddl_built",
    ):
        assert not getattr(kr, name)(), name
    assert kr.cuda_built()
    # What its host has, without which nothing is missed.
    monkeypatch.setattr(gpus, "versions", lambda: (12080, 22809))
    assert kr.nccl_built() == 22809
    monkeypatch.setenv("KERAS_RING_COLLECTIVE", "mpi")
    assert kr.mpi_enabled()
    assert kr.mpi_threads_supported()
    assert isinstance(kr.check_build(), bool)
    assert "keras_ring" in capsys.readouterr().out
