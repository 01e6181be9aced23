"""The comparer finds what differs, and lets pass what does not."""

import json
import re
import zipfile

import h5py
import numpy as np
import pytest

from tests.auto import compare, difference
from tests.auto.starting import Run

pytestmark = pytest.mark.quick

_KERNEL = np.linspace(-1.0, 1.0, 12).reshape(3, 4)


def _recording(**changes):
    recording = {
        "error": None,
        "models": [
            ("Sequential", [("kernel", _KERNEL.copy()), ("bias", np.ones(4))])
        ],
        "optimizers": [("Adam", 30, [_KERNEL.copy()])],
        "calls": [
            ("fit", {"loss": [2.0, 1.0], "val_loss": [2.0, 1.5]}),
            ("evaluate", [1.0, 0.5]),
            ("predict", np.eye(3)),
        ],
        "writes": ["a.csv"],
        "reduced": 60,
    }
    return {**recording, **changes}


def _run(folder, *ranks, returncode=0, stdout="", stderr="", files=None):
    run = Run(folder, returncode, stdout, stderr, list(ranks), 1.0)
    run.work.mkdir(parents=True)
    for name, content in (files or {"a.csv": b"epoch,loss\n0,2.0\n"}).items():
        (run.work / name).write_bytes(content)
    return run


def _judge(tmp_path, one, ranks, random=False, **many):
    if len(ranks) > 1 and ranks[1] is not None:
        ranks = [ranks[0], {**ranks[1], "writes": []}]
    return compare.judge(
        _run(tmp_path / "one", one, stdout=many.pop("printed", "")),
        _run(tmp_path / "many", *ranks, **many),
        random,
    )


def _moved(by):
    """Weights a little away, on all ranks."""
    model = ("Sequential", [("kernel", _KERNEL + by), ("bias", np.ones(4))])
    return _recording(models=[model], optimizers=[("Adam", 30, [_KERNEL + by])])


def _called(index, result):
    recording = _recording()
    name, _ = recording["calls"][index]
    recording["calls"][index] = (name, result)
    return recording


@pytest.mark.parametrize("by", [0.0, 5e-13])
def test_exact(tmp_path, by):
    verdict = _judge(tmp_path, _recording(), [_moved(by), _moved(by)])
    assert verdict.word == compare.EXACT, verdict.reason
    assert verdict.apart == pytest.approx(by, rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (_moved(2e-12), r"model 0 \(Sequential\), kernel: 2.0e-12 apart"),
        (_moved(np.nan), "kernel: inf apart"),
        (_recording(models=[]), r"models \[\] or their weights"),
        (_recording(optimizers=[("Adam", 60, [_KERNEL])]), r"\[60\] steps"),
        (_called(1, [1.0, 0.5 + 1e-8]), r"call 1 \(evaluate\).*e-0[89] apart"),
        (_called(1, [1.0]), "1 items, not 2|2 items, not 1"),
        (_called(2, np.eye(3)[:2]), r"shape \(3, 3\), not \(2, 3\)"),
        (_called(0, {"loss": [2.0, 1.0]}), "keys"),
        (
            _called(0, {"loss": [2.0, 1.1], "val_loss": [2.0, 1.5]}),
            r"\['loss'\]",
        ),
        (_recording(calls=[]), "called 0 methods"),
    ],
)
def test_different(tmp_path, changed, reason):
    verdict = _judge(tmp_path, _recording(), [changed, changed])
    assert verdict.word == compare.DIFFERENT
    assert re.search(reason, verdict.reason), verdict.reason


@pytest.mark.parametrize(
    ("scale", "same"), [(1.0, True), (1e-3, False), (1e3, True)]
)
def test_weights_that_are_rounding_alone(tmp_path, scale, same):
    """What is cancelled later has a gradient of 0, and no digits."""

    def recording(bias):
        weights = [("kernel", scale * _KERNEL), ("bias", np.full(3, bias))]
        return _recording(models=[("Functional", weights)], optimizers=[])

    ranks = [recording(2e-13), recording(2e-13)]
    verdict = _judge(tmp_path, recording(-3e-13), ranks)
    assert (verdict.word == compare.EXACT) == same, verdict
    assert verdict.apart == pytest.approx(5e-13 / min(scale, 1.0))


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (_moved(1e-15), "ranks 0 and 1 are"),
        (None, "rank 1 has recorded nothing"),
        (_recording(models=[]), "rank 1 has models"),
    ],
)
def test_ranks_differ_among_themselves(tmp_path, random, second, reason):
    verdict = _judge(tmp_path, _recording(), [_recording(), second], random)
    assert verdict.word == compare.DIFFERENT
    assert reason in verdict.reason


def test_only_one_rank_returns_another_value(tmp_path):
    ranks = [_recording(), _called(2, np.zeros((3, 3)))]
    verdict = _judge(tmp_path, _recording(), ranks)
    assert verdict.word == compare.DIFFERENT
    assert "rank 1, call 2 (predict)" in verdict.reason


def test_a_file_is_written_twice(tmp_path):
    verdict = compare.judge(
        _run(tmp_path / "one", _recording()),
        _run(tmp_path / "many", _recording(), _recording()),
    )
    assert verdict.word == compare.DIFFERENT
    assert verdict.reason == "a.csv is written by ranks [0, 1]"


@pytest.mark.parametrize(
    ("named", "other"),
    [("a.csv", ""), ("z.csv", ""), ("a.npy", "a.csv"), ("b/a.csv", "a.csv")],
)
def test_what_the_script_writes_itself_is_warned_of(tmp_path, named, other):
    warning = f"[0] keras_ring: WARNING: a.py:3 writes {named!r} on each of the"
    verdict = compare.judge(
        _run(tmp_path / "one", _recording()),
        _run(tmp_path / "many", _recording(), _recording(), stderr=warning),
    )
    if other:
        assert verdict.word == compare.DIFFERENT
        assert verdict.reason == f"{other} is written by ranks [0, 1]"
    else:
        assert verdict.word == compare.EXACT
        assert verdict.told == "a.csv"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"b.csv": b""}, "no file a.csv"),
        ({"a.csv": b"epoch,loss\n0,2.0\n", "b": b""}, "a file too many: b"),
        ({"a.csv": b"epoch,loss\n0,2.1e9\n"}, "a.csv, line 2"),
        ({"a.csv": b"epoch,loss\n0,2.0\n0,2.0\n"}, "2 lines, not 3"),
    ],
)
def test_other_files(tmp_path, files, reason):
    ranks = [_recording(), _recording()]
    verdict = _judge(tmp_path, _recording(), ranks, files=files)
    assert verdict.word == compare.DIFFERENT
    assert reason in verdict.reason


def test_events_have_other_names(tmp_path):
    """They contain times and the process's id; one writer is one file."""
    names = [f"events.out.tfevents.{i}.host.{i}.v2" for i in range(3)]
    runs = [
        _run(tmp_path / str(i), _recording(writes=[]), files=files)
        for i, files in enumerate(
            [{names[0]: b"1"}, {names[1]: b"2"}, {names[1]: b"", names[2]: b""}]
        )
    ]
    assert compare.judge(runs[0], runs[1]).word == compare.EXACT
    verdict = compare.judge(runs[0], runs[2])
    assert verdict.reason == "2 files events.out.tfevents.*, not 1"


@pytest.mark.parametrize(
    ("stderr", "word"),
    [
        ("Trace\n[0-1] keras_ring.errors.AutoError: two optimizers\n", True),
        ("Traceback:\nkeras_ring.errors.ConfigurationError: no\n", True),
        ("[0] keras_ring: fit: 12 samples\n[0-1] ValueError: no\n", False),
        ("Traceback\nValueError: keras_ring: is not at the beginning", False),
        ("", False),
    ],
)
def test_failures(tmp_path, stderr, word):
    ranks = [_recording(), _recording()]
    verdict = _judge(tmp_path, _recording(), ranks, returncode=1, stderr=stderr)
    assert verdict.word == (compare.REFUSED if word else compare.DIFFERENT)
    assert verdict.reason


def test_refused_by_an_exception(tmp_path):
    error = {"class": "keras_ring.errors.AutoError", "text": "why"}
    ranks = [_recording(), _recording(error=error)]
    verdict = _judge(tmp_path, _recording(), ranks, returncode=1)
    assert verdict == compare.Verdict(compare.REFUSED, "AutoError: why")
    error["class"] = "builtins.ValueError"
    again = tmp_path / "again"
    verdict = _judge(again, _recording(), ranks, returncode=1)
    assert verdict.word == compare.DIFFERENT
    assert verdict.reason == "exit 1: rank 1: builtins.ValueError: why"


def test_one_process_has_to_succeed(tmp_path):
    with pytest.raises(ValueError, match="one process fails"):
        compare.judge(
            _run(tmp_path / "one", _recording(), returncode=1),
            _run(tmp_path / "many", _recording()),
        )


def _fit(*losses):
    return _called(0, {"loss": list(losses), "val_loss": [2.0, 1.5]})


@pytest.mark.parametrize(
    ("many", "reason"),
    [
        (_fit(2.1, 0.9), ""),
        (_fit(2.0, np.nan), "loss is"),
        (_fit(2.0, 1.94), "loss falls by 3%, not by 50%"),
        (_fit(2.0, 1.0, 0.5), "loss has 3 epochs, not 2"),
        (_called(0, {"loss": [2.0, 1.0]}), "keys"),
        (_called(2, np.eye(4)), "shapes (4, 4), not (3, 3)"),
        (_called(1, [7.0, 0.1]), ""),
        (_recording(optimizers=[("Adam", 15, [])]), "[15] steps"),
    ],
)
def test_random(tmp_path, many, reason):
    ranks = [many, many]
    verdict = _judge(tmp_path, _recording(), ranks, random=True)
    wanted = compare.DIFFERENT if reason else compare.RANDOM
    assert verdict.word == wanted, verdict.reason
    assert reason in verdict.reason


@pytest.mark.parametrize(("second", "shared"), [(30, True), (29, False)])
def test_shared(tmp_path, second, shared):
    ranks = [_recording(), _recording(reduced=second)]
    verdict = _judge(tmp_path, _recording(), ranks)
    assert verdict.word == compare.EXACT
    assert verdict.shared == shared


@pytest.mark.parametrize(
    ("printed", "stdout", "found"),
    [
        ("a 1.25\n", "[0] a 1.25\n", ""),
        ("a 1.25\n", "[0] a 1.26\n", ""),
        ("a 1.25\n", "[0] a 1.29\n", "line 1"),
        ("n 12\n", "[0] n 13\n", "line 1"),
        ("12/12 ━━ 1s 3ms/step\nb\n", "[0] b\n", ""),
        ("9/9 - 1s - 90ms/step\n", "[0] 9/9 - 0s - 9 samples/s\n", ""),
        ("took 1.5s\n", "[0] took 12s\n", ""),
        ("b\n", "[0] keras_ring: a\n[1] keras_ring: a\n[0] b\n", ""),
        ("a\n", "[0] a\n[1] a\n", "other ranks print lines, too: {1: 1}"),
        ("a\n", "[0-1] a\n", "other ranks print lines, too: {1: 1}"),
        ("a\nb\n", "[0] a\n", "2 lines, not 1"),
    ],
)
def test_printed(tmp_path, printed, stdout, found):
    ranks = [_recording(), _recording()]
    verdict = _judge(
        tmp_path, _recording(), ranks, printed=printed, stdout=stdout
    )
    assert verdict.word == compare.EXACT
    assert found in verdict.printed
    assert bool(found) == bool(verdict.printed)


def _saved(kind, folder, value):
    folder.mkdir()
    path = folder / f"file.{kind}"
    if kind == "npy":
        np.save(path, np.array([value, 1.0]))
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("layers/kernel", data=[value, 1.0])
    elif kind == "keras":
        with zipfile.ZipFile(path, "w") as archive:
            metadata = {"keras_version": "3", "date_saved": str(folder)}
            archive.writestr("metadata.json", json.dumps(metadata))
            config = {"lr": value, "shared_object_id": int(folder.name)}
            archive.writestr("config.json", json.dumps(config))
    else:
        path.write_text(f"loss,{value!r}\n")
    return path


@pytest.mark.parametrize("kind", ["npy", "h5", "keras", "csv"])
@pytest.mark.parametrize(("by", "same"), [(1e-13, True), (1e-6, False)])
def test_contents_of_files(tmp_path, kind, by, same):
    paths = [
        _saved(kind, tmp_path / str(index), 0.123456789012 + index * by)
        for index in range(2)
    ]
    found = difference.of_files(*paths, 1e-9, f"file.{kind}")
    assert (found == "") == same
    if kind == "keras" and found:
        assert found.startswith("file.keras/config.json['lr']: ")
