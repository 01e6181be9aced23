import dataclasses
import json
import time

import pytest

from keras_ring.launch.cli import doctor
from keras_ring.launch.cli.activities import activities
from keras_ring.launch.cli.flight_log import (
    FlightLog,
    FlightLogError,
    Operation,
    read_flight_log,
    read_flight_logs,
)
from tests.unit.status_pages import PageFile

WRITTEN = 1000.0


def operation(name, state="waiting", *, at, decision=None, error="", number=1):
    return Operation(
        number=number,
        name=name,
        kind="allreduce",
        state=state,
        decision=decision,
        submitted=at,
        ended=at + 0.5 if state in ("done", "failed") else None,
        error=error,
    )


def done(name, decision, at=900.0, last=(None, 0.0)):
    last_rank, late = last
    return dataclasses.replace(
        operation(name, "done", at=at, decision=decision),
        last_rank=last_rank,
        late=late,
    )


def log(rank, *operations, members=(0, 1, 2), reason="SIGUSR1", process_set=0):
    return FlightLog(
        rank=rank,
        members=members,
        process_set=process_set,
        host=f"host{rank}",
        pid=100 + rank,
        written=WRITTEN,
        reason=reason,
        operations=operations,
    )


def test_a_rank_with_other_names_is_named():
    step = done("step", 7)
    text = doctor.diagnose(
        [
            log(0, step, operation("grad", at=970.0)),
            log(1, step, operation("grad", at=971.0)),
            log(2, step, operation("loss", at=972.0)),
        ]
    )
    assert text.startswith(
        "Ranks 0, 1 and 2 wrote what they remembered: SIGUSR1. "
        "Rank 2 went another way than the rest. "
        "Ranks 0 and 1 asked for allreduce 'grad' 30.0 s earlier and wait for "
        "rank 2, which has not asked for it. "
        "Rank 2 waits for allreduce 'loss' instead, for which ranks 0 and 1 "
        "have not asked: "
    )
    assert text.endswith(
        "The last that all of them had agreed on was allreduce 'step' "
        "(decision 7)."
    )


def test_one_that_wants_more_than_the_others_is_named():
    step = done("step", 7)
    text = doctor.diagnose(
        [
            log(0, step),
            log(1, step, operation("extra", at=990.0)),
            log(2, step),
        ]
    )
    assert "Rank 1 went another way than the rest." in text
    assert (
        "Rank 1 asked for allreduce 'extra' 10.0 s earlier and waits for ranks"
        " 0 and 2, which have not asked for it." in text
    )
    assert (
        "Rank 0 has asked for nothing since allreduce 'step' was done 99.5 s "
        "earlier: it is busy with something else, hangs outside of collectives,"
        " or is at its end." in text
    )


@pytest.mark.parametrize(
    ("activity", "told"),
    [
        ("data", "it waits for its input pipeline."),
        ("checkpoint", "it saves a checkpoint."),
        ("compute", "it is busy with something else, hangs "),
    ],
)
def test_what_the_one_does_that_others_wait_for(activity, told):
    step = done("step", 7)
    logs = [log(0, step), log(1, step, operation("grad", at=990.0))]
    text = doctor.diagnose(logs, {0: activity})
    assert f"since allreduce 'step' was done 99.5 s earlier: {told}" in text


def test_what_ranks_do_is_on_their_pages(tmp_path):
    directory = tmp_path / "pages"
    written = time.time()
    logs = [
        dataclasses.replace(log(rank), written=written) for rank in range(4)
    ]
    now = time.monotonic_ns()
    for rank, counters in (
        (0, {"activity": 1, "activity_ns": now - 10**9}),
        # It has begun that since.
        (1, {"activity": 1, "activity_ns": now + 10**9}),
        (2, {"activity": 99}),
    ):
        told = {"host": f"host{rank}", "pid": 100 + rank}
        PageFile(directory, rank, 4, **told).set(**counters)
    # Of another process.
    other = PageFile(directory, 3, 4, host="host3", pid=7)
    other.set(activity=2, activity_ns=now - 10**9)
    environment = {"KERAS_RING_STATUS_DIR": str(directory)}
    assert activities(logs, environment) == {0: "data"}
    directory.chmod(0o777)
    assert activities(logs, environment) == {}
    assert activities(logs, {"KERAS_RING_STATUS_DIR": "off"}) == {}


def test_of_several_the_oldest_is_told():
    text = doctor.diagnose(
        [
            log(0, operation("b", at=980.0), operation("a", at=990.0)),
            log(1, operation("c", at=985.0)),
            log(2, operation("c", at=985.0)),
        ]
    )
    assert "Rank 0 asked for allreduce 'b' 20.0 s earlier" in text
    assert "Rank 1 waits for allreduce 'c' instead" in text
    assert "No operation was ever agreed on by all of them." in text


def test_two_ranks_that_differ_are_not_judged():
    text = doctor.diagnose(
        [
            log(0, operation("a", at=980.0), members=(0, 1)),
            log(1, operation("b", at=985.0), members=(0, 1)),
        ]
    )
    assert "another way" not in text
    assert "Rank 1 waits for allreduce 'b' instead" in text


def test_a_rank_without_a_record_is_missed():
    waits = operation("grad", at=980.0)
    reason = "UNAVAILABLE: lost rank 2 (host2, pid 102)"
    text = doctor.diagnose(
        [log(0, waits, reason=reason), log(1, waits, reason=reason)]
    )
    assert "remembered: UNAVAILABLE: lost rank 2 (host2, pid 102). " in text
    assert "Rank 2 left no record" in text
    assert "All others wait for allreduce 'grad'" in text


def test_some_lack_a_result_that_another_rank_has():
    step, grad = done("step", 6), operation("grad", at=980.0)
    text = doctor.diagnose([log(0, step, done("grad", 7)), log(1, step, grad)])
    assert "Rank 2 left no record" in text
    assert "All others wait" not in text


def test_a_rank_that_never_came_is_told():
    waits = operation("first", at=980.0)
    text = doctor.diagnose([log(0, waits), log(1, waits), log(2)])
    assert "Rank 2 has never asked for anything." in text


def test_what_hangs_while_it_runs_is_told():
    text = doctor.diagnose(
        [
            log(0, operation("x", "running", at=980.0, decision=8)),
            log(1, done("x", 8, at=980.0)),
            log(2, done("w", 7), operation("x", at=981.0)),
        ]
    )
    assert (
        "Allreduce 'x' (decision 8) is at work on rank 0; rank 2 is not there "
        "yet." in text
    )


def test_running_on_all_but_one():
    running = operation("x", "running", at=980.0, decision=8)
    behind = operation("w", "running", at=970.0, decision=7)
    text = doctor.diagnose(
        [log(0, done("w", 7), running), log(1, done("w", 7)), log(2, behind)]
    )
    assert "Allreduce 'w' (decision 7) is at work on rank 2." in text


def test_the_first_failure_is_told():
    error = "FAILED_PRECONDITION: shapes differ"
    text = doctor.diagnose(
        [
            log(0, operation("x", "failed", at=950.0, error="later")),
            log(1, operation("x", "failed", at=940.0, error=error)),
            log(2, operation("x", "failed", at=945.0, error=error)),
        ]
    )
    assert (
        "The first operation to fail was allreduce 'x', on rank 1: "
        "FAILED_PRECONDITION: shapes differ." in text
    )
    assert "Nothing was under way on any of them." in text


def test_a_healthy_job_looks_so():
    step = done("step", 7)
    text = doctor.diagnose([log(0, step), log(1, step), log(2, step)])
    assert "another way" not in text
    assert "Nothing was under way" in text


@pytest.mark.parametrize(
    ("lasts", "expected"),
    [
        (
            [(2, 0.004)] * 15 + [(1, 0.001)] * 4 + [(None, 0.0)],
            " Of the last 20 buckets, 75% waited for rank 2, for 4.0 ms on"
            " average. ",
        ),
        # Each in turn, by very little, and too few to tell.
        ([(2, 0.004), (1, 0.004), (0, 0.004)] * 7, None),
        ([(2, 0.0004)] * 20, None),
        ([(2, 0.004)] * 9, None),
        ([(None, 0.0)] * 20, None),
    ],
)
def test_a_rank_that_held_up_the_others_is_named(lasts, expected):
    steps = [
        done(f"g{number % 3}", number + 1, last=last)
        for number, last in enumerate(lasts)
    ]
    text = doctor.diagnose([log(rank, *steps) for rank in range(3)])
    if expected is None:
        assert "waited for" not in text
    else:
        assert expected in text


def test_each_rank_has_a_line():
    lines = doctor.report(
        [
            log(0, done("step", 7), operation("grad", at=970.0)),
            log(1, done("step", 7)),
            log(2),
            log(0, operation("part", at=990.0), process_set=4, members=(0,)),
        ]
    )
    assert lines[1:4] == [
        "  rank 0 (host0, pid 100): last asked for allreduce 'grad', waiting;"
        " 1 open",
        "  rank 1 (host1, pid 101): last asked for allreduce 'step', done"
        " 99.5 s earlier",
        "  rank 2 (host2, pid 102): no operations",
    ]
    assert lines[4] == "Process set 4:"


# --- Files ---

RECORD = {
    "number": 1,
    "name": "grad",
    "kind": "allreduce",
    "op": "Sum",
    "tensors": [["float32", 3]],
    "state": "waiting",
    "decision": None,
    "submitted": 12.5,
    "decided": None,
    "ended": None,
}
DATA = {
    "format": 1,
    "rank": 1,
    "members": [0, 1, 2, 3],
    "process_set": 0,
    "host": "here",
    "pid": 7,
    "written": 13.0,
    "reason": "a test",
    "records": [RECORD],
}


def write(folder, data, rank=1, pid=7):
    path = folder / f"flight.{rank}.{pid}.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_file_is_read(tmp_path):
    read = read_flight_log(write(tmp_path, DATA))
    assert (read.rank, read.members, read.host) == (1, (0, 1, 2, 3), "here")
    assert read.last == Operation(
        number=1,
        name="grad",
        kind="allreduce",
        state="waiting",
        decision=None,
        submitted=12.5,
        ended=None,
        error="",
    )


def test_a_record_may_name_who_was_last(tmp_path):
    record = {**RECORD, "decision": 3, "last_rank": 2, "late": 0.0041}
    read = read_flight_log(write(tmp_path, {**DATA, "records": [record]}))
    assert (read.last.last_rank, read.last.late) == (2, 0.0041)


def test_files_are_in_order(tmp_path):
    for rank in (10, 9):
        write(tmp_path, {**DATA, "rank": rank}, rank)
    assert [read.rank for read in read_flight_logs(tmp_path)] == [9, 10]


def test_of_one_rank_the_last_log_counts(tmp_path):
    for pid, written in ((7, 13.0), (8, 15.0), (9, 14.0)):
        data = {**DATA, "pid": pid, "written": written}
        write(tmp_path, data, pid=pid)
    write(tmp_path, {**DATA, "process_set": 1}, pid="7.set.1")
    read = read_flight_logs(tmp_path)
    assert [(log.process_set, log.pid) for log in read] == [(0, 8), (1, 7)]


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps(None),
        {**DATA, "format": 2},
        {**DATA, "rank": "first"},
        {**DATA, "members": [1e400]},
        {**DATA, "records": 3},
        {**DATA, "records": [[]]},
        {**DATA, "records": [{**RECORD, "state": "lost"}]},
        {key: value for key, value in DATA.items() if key != "host"},
    ],
)
def test_what_is_no_log_is_refused_with_its_name(tmp_path, data):
    path = write(tmp_path, data)
    with pytest.raises(FlightLogError, match=str(path)):
        read_flight_log(path)


def test_a_directory_without_logs_is_an_error(tmp_path):
    with pytest.raises(FlightLogError, match="no flight logs"):
        read_flight_logs(tmp_path)


def test_operations_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        operation("x", at=1.0).name = "y"


@pytest.mark.parametrize(("takes", "found"), [(0.5, "52%"), (0.1, "")])
def test_links_are_named_where_no_rank_is_late(takes, found):
    # Each asks first for every second one, and waits a little for the other.
    ranks = [
        log(
            rank,
            *(
                dataclasses.replace(
                    done(f"g{i}", i, at=at),
                    submitted=at - 0.05 * (i % 2 == rank),
                    ended=at + takes,
                )
                for i in range(1, 13)
                for at in [900.0 + i]
            ),
            members=(0, 1),
        )
        for rank in range(2)
    ]
    text = doctor.diagnose(ranks)
    said = (
        f"The last 12 buckets took {found} of the time without a rank that was"
        " late for them: the links between ranks."
    )
    assert (said in text) == bool(found), text
    assert ("the links" in text) == bool(found)


def test_a_rank_that_is_late_comes_before_links():
    ranks = [
        log(
            rank,
            *(
                done(f"g{i}", i, at=900.0 + i, last=(1, 0.2))
                for i in range(1, 13)
            ),
            members=(0, 1),
        )
        for rank in range(2)
    ]
    text = doctor.diagnose(ranks)
    assert "waited for rank 1" in text
    assert "the links" not in text


@pytest.mark.parametrize("seconds", [1.0, 20.0])
def test_a_link_stands_still_if_all_are_at_work(seconds):
    def of(rank, state):
        step = operation("step", state, at=WRITTEN - seconds, decision=7)
        return log(rank, step, members=(0, 1))

    said = "so one of the links between ranks stands still"
    text = doctor.diagnose([of(0, "running"), of(1, "running")])
    assert (said in text) == (seconds > 5.0), text
    # One has it done, and the other misses only the end.
    assert said not in doctor.diagnose([of(0, "running"), of(1, "done")])
