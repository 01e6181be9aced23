"""Lines of launcher and ranks as JSON objects."""

import json
import logging
import os
import re
import sys
import types

import pytest

from keras_ring.core import json_logs, native
from keras_ring.core.json_logs import JsonFormatter
from keras_ring.errors import ConfigurationError
from keras_ring.launch import usage
from keras_ring.launch.json_format import JsonFormat
from keras_ring.launch.output import RankStream
from keras_ring.launch.plan import make_plan
from keras_ring.launch.request import RunRequest
from keras_ring.launch.screen import Screen
from keras_ring.launch.usage import UsageError
from keras_ring.protocol.log_source import LogSource, timestamp
from keras_ring.protocol.trace_context import TraceContext

HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = HEADER.split("-")[1:3]
KEY = "ab" * 32


def _plan(environment=None, **options):
    request = RunRequest(command=("true",), num_ranks=3, **options)
    return make_plan(request, {"PATH": "/usr/bin:/bin", **(environment or {})})


def test_incoming_traces_go_on():
    assert TraceContext.of({"TRACEPARENT": HEADER}).header == HEADER
    launcher = TraceContext.of_launcher({"TRACEPARENT": HEADER})
    assert (launcher.trace_id, launcher.flags) == (TRACE, "01")
    assert launcher.span_id != SPAN
    spans = {launcher.of_rank(rank).span_id for rank in range(4)}
    assert len(spans | {launcher.span_id}) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)
    later = "01" + HEADER[2:] + "-more"
    assert TraceContext.of({"TRACEPARENT": later}).trace_id == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        HEADER.upper(),
        "ff" + HEADER[2:],
        HEADER.replace(TRACE, "0" * 32),
        HEADER.replace(SPAN, "0" * 16),
        HEADER[:-1],
    ],
)
def test_malformed_traces_are_begun_anew(header):
    environment = {"TRACEPARENT": header}
    assert TraceContext.of(environment) is None
    first, second = (TraceContext.of_launcher(environment) for _ in range(2))
    assert first.trace_id != second.trace_id


def test_ranks_of_another_engine_have_a_trace_in_common():
    of_rank = [
        json_logs._source(
            {"KERAS_RING_JOB_KEY": KEY, "KERAS_RING_RANK": str(rank)}
        )
        for rank in range(2)
    ]
    assert of_rank[0].trace.trace_id == of_rank[1].trace.trace_id
    assert of_rank[0].trace.span_id != of_rank[1].trace.span_id
    assert KEY not in of_rank[0].line("", level="info", logger="")


def test_launcher_and_rank_have_the_same_names():
    plan = _plan(log_format="json")
    told = {**plan.environment, "KERAS_RING_JOB_KEY": plan.key}
    rank = json_logs._source({**told, "KERAS_RING_RANK": "2"})
    assert rank == plan.log_source.of_rank(2, rank.host)


def test_times():
    assert timestamp(1.25) == "1970-01-01T00:00:01.250000Z"


def _formatted(formatter, logger, *args, **more):
    record = logging.getLogger(logger).makeRecord(
        logger, logging.WARNING, "file", 1, *args, **more
    )
    line = formatter.format(record)
    assert line.isascii() and "\n" not in line
    return json.loads(line)


def test_records():
    source = LogSource(rank=3, job="job", trace=TraceContext(TRACE, SPAN))
    formatter = JsonFormatter(source, lambda: 7)
    told = _formatted(formatter, "absl", "keras_ring: %s", ("n\xe9e\n",), None)
    assert (told["logger"], told["message"]) == ("keras_ring", "n\xe9e\n")
    assert (told["level"], told["rank"], told["step"]) == ("warning", 3, 7)
    assert (told["trace_id"], told["span_id"]) == (TRACE, SPAN)
    assert "exception" not in told
    try:
        raise ValueError("of the program")
    except ValueError:
        told = _formatted(formatter, "mine", "x", (), sys.exc_info())
    assert (told["logger"], told["message"]) == ("mine", "x")
    assert told["exception"].endswith("ValueError: of the program")


def test_steps_are_those_of_the_core(monkeypatch):
    core = types.SimpleNamespace(
        is_initialized=lambda: True,
        metrics=lambda: {"fit_steps": counted},
        StatusError=RuntimeError,
    )
    monkeypatch.setattr(native, "core", lambda: core)
    counted, mine = 0, os.getpid()
    assert json_logs._step_of(mine)() is None
    counted = 5
    assert json_logs._step_of(mine)() == 5
    # In a process that the rank has forked.
    assert json_logs._step_of(mine + 1)() is None
    core.is_initialized = lambda: False
    assert json_logs._step_of(mine)() is None


def test_records_are_lines_for_the_launcher():
    """It cuts what is longer than 64 KiB; and not all text is characters."""
    formatter = JsonFormatter(LogSource(), lambda: None)
    text = "\N{GRINNING FACE}\udc80" * 50_000
    told = _formatted(formatter, "x", text, (), None)
    assert told["message"].startswith("\N{GRINNING FACE}\\udc80")
    assert " [...] " in told["message"]
    assert len(json.dumps(told)) < 64 * 1024


def test_another_value_is_refused():
    with pytest.raises(ConfigurationError, match="LOG_FORMAT is 'xml'"):
        json_logs.install({"KERAS_RING_LOG_FORMAT": "xml"})
    for options, environment in (
        ({"log_format": "xml"}, {}),
        ({}, {"KERAS_RING_LOG_FORMAT": "xml"}),
    ):
        with pytest.raises(UsageError, match="'xml': expected text or json"):
            _plan(environment, **options)
    assert _plan().log_source is None
    text = _plan({"KERAS_RING_LOG_FORMAT": "json"}, log_format="text")
    assert text.log_source is None
    assert text.environment["KERAS_RING_LOG_FORMAT"] == "text"
    assert "TRACEPARENT" not in text.environment


class Sink:
    def __init__(self):
        self.lines = []

    def put(self, text):
        self.lines += map(json.loads, text.splitlines())


def test_alike_lines_are_one_object():
    out, err = Sink(), Sink()
    screen = Screen(_plan(log_format="json"), (out, err))
    for rank in range(3):
        source = LogSource(rank=rank, trace=TraceContext(TRACE, SPAN))
        line = source.of_rank(rank, "").line("m", level="info", logger="x")
        header = f"E0000 00:00:1.9{rank}  77{rank} port.cc:153] "
        stream = screen.stream(rank, "stderr", f"host{rank}")
        stream.feed(f"{line}\n{header}oneDNN\nplain {rank}\n".encode())
    for rank in range(3):
        screen.stream(rank, "stdout").feed(b'alike\n{"time": 1}\n')
    first, cpp, *others = err.lines
    assert (first["message"], first["ranks"]) == ("m", [0, 1, 2])
    assert (cpp["message"][-6:], cpp["ranks"]) == ("oneDNN", [0, 1, 2])
    assert (cpp["rank"], cpp["host"]) == (0, "host0")
    assert [each["message"] for each in others] == [
        f"plain {rank}" for rank in range(3)
    ]
    assert [each["rank"] for each in out.lines] == [0, 0, 1, 1, 2, 2]
    # Without a level it is no log record.
    assert out.lines[1]["message"] == '{"time": 1}'
    assert screen.tail(1) == (
        "m", "E0000 00:00:1.91  771 port.cc:153] oneDNN", "plain 1",
        "alike", '{"time": 1}',
    )  # fmt: skip


@pytest.mark.parametrize("line", [b"{", b'{"level": 1}', b"[" * 9999, b"\xff"])
def test_what_is_no_record_is_wrapped(line):
    made = JsonFormat(LogSource()).recorder(1, "h", "stdout")(line)
    told = json.loads(made.shown)
    assert told["message"] == line.decode("utf-8", "backslashreplace")
    assert (told["rank"], told["host"], told["stream"]) == (1, "h", "stdout")
    assert made.text == line


def test_what_an_agent_prints():
    source = LogSource(job="job", host="here")
    told = json.loads(JsonFormat(source).of_agent("node7", b"noise"))
    assert (told["host"], told["rank"], told["job"]) == ("node7", None, "job")
    assert (told["message"], told["stream"]) == ("noise", "stderr")


def test_a_record_of_the_program_is_left_alone(tmp_path):
    record = b'{"time":"now", "level": "x",  "message": "m"}'
    shown = []
    with open(tmp_path / "file", "wb") as file:
        recorder = JsonFormat(LogSource()).recorder(1, "h", "stdout")
        RankStream(shown.append, file, recorder).feed(record + b"\nplain\n")
    assert shown[0] == (b"m", record)
    first, second = (tmp_path / "file").read_bytes().splitlines()
    assert first == record
    assert json.loads(second)["message"] == "plain"


def test_what_the_launcher_says(capsys):
    usage.say("two\nlines", level="error")
    with usage.speaking_as(LogSource(job="job")):
        usage.say("two\nlines", level="error", event="e")
    usage.say("text")
    *text, line, last = capsys.readouterr().err.splitlines()
    assert text == ["keras-ring: error: two", "keras-ring: lines"]
    assert last == "keras-ring: text"
    told = json.loads(line)
    assert (told["message"], told["level"]) == ("two\nlines", "error")
    assert (told["event"], told["job"], told["rank"]) == ("e", "job", None)
