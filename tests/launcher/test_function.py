"""`keras_ring.run`."""

import inspect
import json
import linecache
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import keras_ring as kr
from tests.documented import blocks
from tests.launcher.command import wait_for_files

pytestmark = pytest.mark.timeout(120)
PAGE = Path(__file__).parents[2] / "docs/running.md"


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path, monkeypatch):
    """All files of a call are in a directory that must be empty after it."""
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    yield
    assert list(private.iterdir()) == []


def rank_and(*args, **kwargs):
    return int(os.environ["KERAS_RING_RANK"]), args, kwargs


def test_results_come_by_rank():
    # By reference, from a module that ranks import.
    assert kr.run(rank_and, (1, "a"), {"b": [2]}, np=3) == [
        (rank, (1, "a"), {"b": [2]}) for rank in range(3)
    ]


def test_closures_and_lambdas():
    number = 41
    assert kr.run(lambda: number + 1, np=1) == [42]
    assert kr.run(lambda: lambda: number, np=None, hosts="localhost:2")[
        1
    ]() == (number)


def test_a_collective():
    def add():
        kr.init()
        return float(kr.allreduce(kr.rank() + 1.0, kr.Sum))

    assert kr.run(add, np=2, start_timeout=60, log_level="error") == [3.0] * 2


CELL = """
def train(n):
    import inspect
    import sys
    import traceback

    if n < 0:
        raise ValueError("of a cell")  # the line that failed
    import tensorflow as tf

    @tf.function
    def count(x):
        for _ in tf.range(n):
            if tf.reduce_sum(x) > 3.0:
                x += 1.0
        return x

    def pick(x):
        if x > 1.0:
            return x * 2.0
        return x + 2.0

    mapped = tf.data.Dataset.from_tensor_slices([3.0, 0.5]).map(pick)
    return (
        float(count(tf.constant(4.0))),
        [float(x) for x in mapped],
        inspect.getsource(pick).splitlines()[0].strip(),
        train.__code__.co_filename,
        lambda: train,
    )
"""


def test_sources_go_with_the_function(monkeypatch):
    """As of a notebook, whose cells are in no file."""
    name = "/nowhere/ipykernel_7/cell.py"
    lines = CELL.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, lines, name))
    cell = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), cell)
    ((count, mapped, source, file_name, again),) = kr.run(
        cell["train"], (3,), np=1
    )
    assert (count, mapped) == (7.0, [6.0, 2.5])
    assert (source, file_name) == ("def pick(x):", name)
    # What comes back is as it was sent.
    assert inspect.getsource(again()) == CELL.lstrip("\n")
    with pytest.raises(kr.errors.RankFailedError) as failure:
        kr.run(cell["train"], (-1,), np=1)
    text = str(failure.value)
    assert f'File "{name}", line 8, in train' in text
    assert "# the line that failed" in text


def test_files_are_private_and_variables_are_set():
    def look():
        directory = Path(sys.modules["__main__"].__dict__["_directory"])
        files = [directory, *directory.iterdir()]
        return (
            os.environ["SOME_VARIABLE"],
            sys.argv[1:],
            {stat.S_IMODE(path.stat().st_mode) for path in files},
        )

    found = kr.run(look, np=2, env={"SOME_VARIABLE": "x y"})
    assert found == [("x y", [], {0o700, 0o600})] * 2


def test_threads_and_processors_of_ranks(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cpus = sorted(os.sched_getaffinity(0))

    def look():
        return os.environ["OMP_NUM_THREADS"], sorted(os.sched_getaffinity(0))

    assert kr.run(look, np=2, threads=3) == [("3", cpus)] * 2
    assert kr.run(look, np=1, threads=1, bind=True) == [("1", cpus)]
    with pytest.raises(ValueError, match="--threads -1"):
        kr.run(look, np=2, threads=-1)


def test_output(tmp_path, capfd):
    kr.run(print, ("some text",), np=2, output_dir=tmp_path / "out")
    assert capfd.readouterr().out.count("some text") == 2
    text = (tmp_path / "out" / "rank.1" / "stdout").read_text()
    assert "some text" in text


def test_output_as_json(tmp_path, capfd):
    kr.run(
        print,
        ("some\nmore\ntext",),
        np=2,
        log_format="json",
        output_dir=tmp_path,
        output_max_bytes=300,
        output_backups=1,
    )
    shown = capfd.readouterr()
    told = [json.loads(line) for line in shown.out.splitlines()]
    assert sorted((each["rank"], each["message"]) for each in told) == [
        (rank, text) for rank in (0, 1) for text in ("more", "some", "text")
    ]
    assert "keras-ring: " not in shown.err
    assert all(map(json.loads, shown.err.splitlines()))
    names = {path.name for path in (tmp_path / "rank.1").iterdir()}
    assert names == {"stderr", "stdout", "stdout.1"}


class Arrives:
    """Says where it was unpickled."""

    def __reduce__(self):
        return (eval, ("__import__('keras_ring').is_initialized()",))


def test_a_function_of_one_process(capfd):
    """Ranks have begun before the function comes, for it may import Keras."""

    def look(arrived):
        print("seen by", kr.rank())
        return arrived, os.environ.get("KERAS_RING_AUTO"), kr.size()

    assert kr.run(look, (Arrives(),), np=2, auto=True) == [(True, None, 2)] * 2
    # What one process would have printed.
    assert capfd.readouterr().out == "seen by 0\n"
    kr.run(print, ("of all",), np=2, auto=True, stdout="all")
    assert capfd.readouterr().out.count("of all") == 2


def fail_on(rank):
    if int(os.environ["KERAS_RING_RANK"]) == rank:
        raise KeyError("no such thing")
    time.sleep(600)


def test_an_exception_ends_all_and_comes_with_its_traceback(capfd):
    began = time.monotonic()
    with pytest.raises(kr.errors.RankFailedError) as caught:
        kr.run(fail_on, (1,), np=3)
    assert time.monotonic() - began < 60
    text = str(caught.value)
    assert "rank 1" in text.splitlines()[0]
    assert "it failed first" in text
    assert "KeyError: 'no such thing'" in text
    assert f'File "{__file__}"' in text
    assert "in fail_on" in text


def test_a_rank_that_dies():
    with pytest.raises(kr.errors.RankFailedError, match="killed by SIGKILL"):
        kr.run(lambda: os.kill(os.getpid(), signal.SIGKILL), np=2)


def test_a_rank_that_exits():
    with pytest.raises(kr.errors.RankFailedError, match="before the function"):
        kr.run(sys.exit, np=2)


def test_what_cannot_be_pickled(capfd):
    lock = threading.Lock()
    with pytest.raises(TypeError, match="possible to pickle them"):
        kr.run(lambda: lock)
    with pytest.raises(
        kr.errors.RankFailedError, match="On rank 0 it is of type lock"
    ):
        kr.run(lambda: threading.Lock(), np=1)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"np": 0}, "number of ranks"),
        ({"np": None, "hosts": ""}, "host:slots"),
        ({"np": 3, "hosts": "localhost:2"}, "more ranks than the 2"),
        ({"env": {"KERAS_RING_RANK": "1"}}, "set by keras-ring itself"),
        ({"start_timeout": -1}, "KERAS_RING_START_TIMEOUT"),
        ({"log_level": "loud"}, "KERAS_RING_LOG_LEVEL"),
        ({"stdout": "none"}, "expected rank0 or all"),
        (
            {"auto": True, "env": {"KERAS_RING_AUTO_BATCH": "half"}},
            "KERAS_RING_AUTO_BATCH is 'half'",
        ),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        kr.run(print, **arguments)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="`fn` must be a function"):
        kr.run("print")


def test_only_in_the_main_thread():
    caught = []

    def call():
        try:
            kr.run(print)
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "only the main thread" in caught[0]


def test_ctrl_c_ends_all(tmp_path):
    script = tmp_path / "caller.py"
    script.write_text(
        """
import os, sys, time
from pathlib import Path
import keras_ring as kr

def wait():
    # Defined in __main__.
    rank = os.environ["KERAS_RING_RANK"]
    path = Path(sys.path[0], f"part.{rank}")
    path.write_text(str(os.getpid()))
    path.rename(path.with_name(f"rank.{rank}"))
    time.sleep(600)

if __name__ == "__main__":
    try:
        kr.run(wait, np=2)
    except KeyboardInterrupt:
        print("interrupted")
"""
    )
    caller = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "private")},
        text=True,
        start_new_session=True,
    )
    names = {"rank.0", "rank.1"}
    wait_for_files(tmp_path, names)
    pids = [int((tmp_path / name).read_text()) for name in names]
    caller.send_signal(signal.SIGINT)
    out, _ = caller.communicate(timeout=60)
    assert out == "interrupted\n"
    assert caller.returncode == 0
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_the_page(tmp_path):
    (text,) = blocks(PAGE.read_text(), "python")
    script = tmp_path / "page.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=110,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[0] for line in lines] == ["0", "1"], lines
    assert lines[0][1:] == lines[1][1:]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"np": "2"}, r"`np` must be an integer.*'2' of type str"),
        ({"np": 2.0}, r"`np` must be an integer.*2\.0 of type float"),
        ({"np": True}, r"`np` must be an integer.*True of type bool"),
        ({"args": 2}, r"`args` must be a list.*for 2 ranks, np=2.*type int"),
        ({"args": "ab"}, r"`args` must be a list.*'ab' of type str"),
        ({"kwargs": [1]}, r"`kwargs` must be a dictionary.*\[1\] of type list"),
    ],
)
def test_arguments_of_another_type(arguments, told):
    with pytest.raises(TypeError, match=told):
        kr.run(rank_and, **arguments)
