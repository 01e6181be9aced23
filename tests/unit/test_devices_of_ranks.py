"""The GPU that a rank of an unchanged program sees."""

import pytest

from keras_ring.launch.sharing import Machine
from keras_ring.protocol import nvidia
from keras_ring.unchanged import devices


@pytest.mark.parametrize(
    ("ranks", "seen", "expected"),
    [
        (4, ["0", "1", "2", "3"], ["0", "1", "2", "3"]),
        (2, ["5", "GPU-7", "3"], ["5", "GPU-7"]),
        (3, ["0", "1"], ["0", "1", "0"]),
    ],
)
def test_each_gets_one(ranks, seen, expected):
    variables = [devices.variables_of(r, ranks, seen) for r in range(ranks)]
    assert [v["CUDA_VISIBLE_DEVICES"] for v in variables] == expected
    shared = ranks > len(seen)
    for each in variables:
        assert ("TF_FORCE_GPU_ALLOW_GROWTH" in each) == shared


def test_a_rank_alone_keeps_all():
    assert devices.variables_of(0, 1, ["0", "1"]) == {}
    assert devices.variables_of(1, 2, []) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        ("1", []),
        ("", []),
        ("GPU-a, GPU-b", ["GPU-a", "GPU-b"]),
    ],
)
def test_what_the_scheduler_has_given_is_kept(monkeypatch, given, expected):
    monkeypatch.setattr(nvidia, "models", lambda: ["A"] * 3)
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert devices._seen(environment) == expected


@pytest.mark.parametrize(
    ("given", "number"),
    [(None, 2), ("1", 1), ("", 0), ("-1", 0), ("1,-1,0", 1), ("0,1,2", 2)],
)
def test_a_host_has_the_gpus_that_may_be_used(monkeypatch, given, number):
    monkeypatch.setattr(nvidia, "models", lambda: ["A"] * 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert Machine.here().gpus == number


@pytest.mark.parametrize("given", [None, "false"])
def test_what_the_user_says_of_memory_is_kept(monkeypatch, given):
    monkeypatch.setattr(devices.topology, "local_rank", lambda: 2)
    monkeypatch.setattr(devices.topology, "local_size", lambda: 3)
    monkeypatch.setattr(devices.notices, "say", lambda text: None)
    environment = {"CUDA_VISIBLE_DEVICES": "4,5"}
    if given:
        environment["TF_FORCE_GPU_ALLOW_GROWTH"] = given
    monkeypatch.setattr(devices.os, "environ", environment)
    devices.share()
    assert environment == {
        "CUDA_VISIBLE_DEVICES": "4",
        "TF_FORCE_GPU_ALLOW_GROWTH": given or "true",
    }
