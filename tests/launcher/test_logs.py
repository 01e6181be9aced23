"""`--log-format json`, from the launcher and from ranks."""

import json
import signal
import sys

import pytest

from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(60)
HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = HEADER.split("-")[1]


def _objects(text):
    return [json.loads(line) for line in text.splitlines()]


def _run(script, *options, **environment):
    words = ("run", "-np", "2", "--log-format", "json", *options, "--")
    rank = (sys.executable, "-c", script)
    return Command(*words, *rank, **environment).wait()


def test_a_failure_is_an_object():
    done = _run(
        """
import os, signal, time
if os.environ["KERAS_RING_RANK"] == "1":
    print("last words")
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(30)
""",
        TRACEPARENT=HEADER,
    )
    assert done.returncode == 128 + signal.SIGKILL
    (words,) = _objects(done.stdout)
    said = _objects(done.stderr)
    (failure,) = [each for each in said if each.get("event") == "failure"]
    assert failure["message"].startswith("rank 1 (pid ")
    assert (failure["rank"], failure["exit_code"]) == (1, 137)
    assert (failure["signal"], failure["level"]) == ("SIGKILL", "error")
    assert failure["tail"] == ["last words"]
    assert {each["trace_id"] for each in [words, *said]} == {TRACE}
    assert words["job"] == failure["job"]
    assert words["span_id"] != failure["span_id"]


def test_bad_input_is_an_object():
    done = _run("", "--env", "A")
    assert done.returncode == 2
    (error,) = _objects(done.stderr)
    assert error["level"] == "error"
    assert error["message"].startswith("--env: 'A'")


RANK = """
import logging, sys, threading, warnings
import keras_ring as kr
kr.init()
from keras_ring.core import telemetry
telemetry.count("fit_steps", 120)
from absl import logging as absl_logging
absl_logging.warning("keras_ring: of keras_ring")
logging.getLogger("mine").error("of the program")
warnings.warn("a warning")
import tensorflow as tf
tf.get_logger().warning("of TensorFlow")
def fail(): raise KeyError("in a thread")
thread = threading.Thread(target=fail)
thread.start(); thread.join()
kr.allreduce(1.0)
if kr.rank() == 1:
    raise ValueError("the cause")
kr.allreduce(1.0)
"""


def test_every_line_of_a_rank_is_an_object(tmp_path):
    done = _run(
        RANK,
        "--output-dir",
        str(tmp_path),
        "--output-max-bytes",
        "1K",
        "--output-backups",
        "99",
        KERAS_RING_FLIGHT_DIRECTORY="off",
    )
    assert done.returncode == 1
    _objects(done.stdout)
    said = [each for each in _objects(done.stderr) if "level" in each]
    by_logger = {}
    for each in said:
        by_logger.setdefault(each["logger"], []).append(each)
    for logger, message in (
        ("keras_ring", "of keras_ring"),
        ("mine", "of the program"),
        ("tensorflow", "of TensorFlow"),
    ):
        # Once for both ranks, or once from each.
        told = [
            rank
            for each in by_logger[logger]
            for rank in each.get("ranks", [each["rank"]])
            if each["message"] == message
        ]
        assert sorted(told) == [0, 1], logger
    assert {each["step"] for each in by_logger["mine"]} == {120}
    assert "a warning" in by_logger["py.warnings"][0]["message"]
    exceptions = {
        (each["rank"], each["message"]): each["exception"]
        for each in by_logger["python"]
    }
    assert "KeyError: 'in a thread'" in "".join(exceptions.values())
    assert "line 18" in exceptions[1, "ValueError: the cause"]
    (failure,) = [each for each in said if each.get("event") == "failure"]
    assert failure["error"] == "ValueError: the cause"
    assert "ValueError: the cause" in failure["exception"]
    names = {(each["job"], each["trace_id"]) for each in said}
    assert len(names) == 1
    assert [len(name) for name in names.pop()] == [12, 32]
    files = list(tmp_path.glob("rank.1/stderr*"))
    assert len(files) > 1
    kept = [
        each
        for path in files
        if path.stat().st_size <= 1024
        for each in _objects(path.read_text())
    ]
    assert {each["rank"] for each in kept} == {1}
