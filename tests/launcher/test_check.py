import json
import re
import sys
import types
from importlib import metadata

import pytest

from keras_ring.core import gpus
from keras_ring.launch import host_facts
from keras_ring.launch.cli import check
from keras_ring.launch.cli.cli import main
from keras_ring.protocol.processors import Node


@pytest.fixture
def native(monkeypatch):
    """Stands in for the native library, built for a given TensorFlow."""

    def build(version):
        module = types.ModuleType("keras_ring.core.native")
        module.build_info = lambda: {
            "tf_version_built": version,
            "compiler": "g++",
            "libraries": ["a.so"],
            "cpu_level": "avx2",
        }
        tensorflow = types.ModuleType("tensorflow")
        tensorflow.__version__ = "2.21.0"
        monkeypatch.setitem(sys.modules, "keras_ring.core.native", module)
        monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
        monkeypatch.setitem(sys.modules, "keras", tensorflow)
        monkeypatch.setattr(metadata, "version", lambda name: "1.0")

    return build


@pytest.mark.parametrize("built_for", ["2.21.1", ["2.20", "2.21"]])
def test_ready(native, capsys, built_for):
    native(built_for)
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "a job can run here" in out
    assert "loopback" in out
    assert re.search("^CPU kernels +avx2$", out, re.MULTILINE)


def test_another_tensorflow_than_the_operations_were_built_for(native, capsys):
    native("2.20.0")
    assert main(["check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ready"]
    assert found["facts"]["CPU kernels"] == "avx2"
    assert found["missing"] == [
        "the operations were built for TensorFlow 2.20, but 2.21 is"
        f" installed: {check._INSTALL}"
    ]


def test_what_cannot_be_imported_is_told_with_its_cure(
    native, capsys, monkeypatch
):
    native("2.21.0")
    monkeypatch.setitem(sys.modules, "keras_ring.core.native", None)
    monkeypatch.setitem(sys.modules, "keras", None)
    assert main(["check", "--json"]) == 1
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert "pip install keras" in missing[0]
    assert "pip install ." in missing[1]


def test_cpu_features(tmp_path):
    (tmp_path / "cpuinfo").write_text("x : y\nflags\t\t: fpu avx2 avx512f\n")
    assert check._cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "avx512f"}
    assert check._cpu_flags(tmp_path / "missing") == set()


def test_whether_so_many_ranks_fit(native, capsys, monkeypatch):
    native("2.21.0")
    machine = check.Machine(4, (Node(0, ((0, 2), (1, 3))),))
    monkeypatch.setattr(check.Machine, "here", lambda: machine)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    found = {}
    for ranks in (1, 2, 8):
        assert main(["check", "--json", "-np", str(ranks)]) == 0
        found[ranks] = json.loads(capsys.readouterr().out)
    threads = {
        ranks: int(each["facts"]["threads of each rank"])
        for ranks, each in found.items()
    }
    assert threads == {1: 4, 2: 2, 8: 1}
    assert found[2]["facts"]["with --bind"] == (
        "local ranks 0-1 on processors: 0,2; 1,3"
    )
    assert "with --bind" not in found[8]["facts"]
    assert not [line for line in found[2]["advice"] if "ranks share" in line]
    assert "8 ranks share 4 cores" in "".join(found[8]["advice"])


def test_a_quota_is_shown(native, capsys, monkeypatch):
    native("2.21.0")
    for quota in (None, 1.5):
        monkeypatch.setattr(check.cores, "quota", lambda quota=quota: quota)
        main(["check", "--json"])
        facts = json.loads(capsys.readouterr().out)["facts"]
        assert facts.get("cores by quota of the control group") == quota


def test_a_host_on_which_memory_cannot_be_shared(native, capsys, monkeypatch):
    native("2.21.0")
    assert main(["check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["shared memory"] is True

    def refuse(*_):
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(check.os, "memfd_create", refuse)
    assert main(["check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["shared memory"] is False
    assert "memfd_create" in "".join(found["missing"])


def test_gpus(native, capsys, monkeypatch):
    native("2.21.0")
    here = [
        gpus.Gpu(i, "A card", f"GPU-{i}", "0", 80 << 30, (9, 0)) for i in (0, 1)
    ]
    monkeypatch.setattr(gpus, "gpus", lambda: here)
    monkeypatch.setattr(gpus, "why_none", lambda: "")
    monkeypatch.setattr(gpus, "versions", lambda: (12080, 22809))
    sys.modules["tensorflow"].config = types.SimpleNamespace(
        list_physical_devices=lambda kind: []
    )
    assert main(["check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["GPUs"] == ["0: A card, 80 GiB", "1: A card, 80 GiB"]
    assert found["facts"]["driver for CUDA"] == "12.8"
    assert found["facts"]["NCCL"] == "2.28.9"
    assert any("TensorFlow uses none" in line for line in found["advice"])


def test_gpus_of_a_host_are_read_from_the_drivers_module(tmp_path):
    assert host_facts.gpu_facts(tmp_path) == {}
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Wed Sep\n"
    )
    for number, model in enumerate(["B", "A", "B"]):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t {model}\nIRQ:  \t 1\nGPU UUID: \t GPU-{number}\n"
        )
    assert host_facts.gpu_facts(tmp_path) == {
        "gpus": ["1 A", "2 B"],
        "gpu_driver": "580.159.04",
    }
