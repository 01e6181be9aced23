"""Timelines of real ranks: whole ones, of a signal, and of killed ranks."""

import collections
import random
import signal
import time

import numpy as np
import pytest

from keras_ring.observe.timeline.merge import read
from tests import tiers
from tests.harness import ANY, run_ranks
from tests.multiprocess.failures import rank_timeline, trace_readers

pytestmark = pytest.mark.timeout(180)

SPAN_KIND = 0
NEGOTIATE, QUEUE, EXECUTE, STEP = 0, 1, 2, 16


def of_phase(rank, phase):
    spans = rank.spans
    return spans[(spans["kind"] == SPAN_KIND) & (spans["phase"] == phase)]


def test_what_is_recorded_is_what_was_counted(tmp_path):
    path, steps = tmp_path / "t.json", 40
    counted = run_ranks(rank_timeline.record, 3, args=(str(path), steps)).values
    timeline = read(path)
    assert [rank.rank for rank in timeline.ranks] == [0, 1, 2]
    assert not (tmp_path / "t.json.ranks").exists()
    for rank, counters in zip(timeline.ranks, counted, strict=True):
        assert of_phase(rank, STEP)["value"].tolist() == [*range(1, steps + 1)]
        executed = of_phase(rank, EXECUTE)
        assert len(executed) == counters["buckets"] == 2 * steps
        for phase, name in (
            (NEGOTIATE, "negotiate_ns"),
            (QUEUE, "queue_ns"),
            (EXECUTE, "execute_ns"),
        ):
            spans = of_phase(rank, phase)
            total = np.sum(spans["end"] - spans["begin"])
            assert total == pytest.approx(counters[name], rel=0.02), name
        tensors = of_phase(rank, NEGOTIATE)
        names = [rank.names[number] for number in tensors["name"]]
        assert {name: names.count(name) for name in set(names)} == {
            "large": steps,
            "small": steps,
        }
    # A collective has the same number everywhere.
    tags = [set(of_phase(r, EXECUTE)["tag"]) for r in timeline.ranks]
    assert tags[0] == tags[1] == tags[2]


READERS = {
    "t.json": trace_readers.read_trace_events,
    "t.trace": trace_readers.read_perfetto,
}


@pytest.mark.parametrize("name", READERS)
def test_who_knows_the_format_alone_finds_what_was_counted(tmp_path, name):
    path, steps = tmp_path / name, 40
    counted = run_ranks(rank_timeline.record, 4, args=(str(path), steps)).values
    processes = READERS[name](path)
    found = [
        next(
            process
            for title, process in processes.items()
            if title.startswith(f"rank {rank} ")
        )
        for rank in range(4)
    ]
    for process, counters in zip(found, counted, strict=True):
        totals = process.totals()
        # By whom, and for what, a rank waits; and what it is made of.
        for phase in ("negotiate", "queue", "execute", "wait", "reduce"):
            assert totals[phase] == pytest.approx(
                counters[f"{phase}_ns"], rel=0.02, abs=20e3
            ), phase
        negotiated = {each.name for each in process.of("negotiate")}
        assert negotiated == {"negotiate large", "negotiate small"}
        # Who was last, and by how much: as each counts of itself.
        last = collections.Counter()
        late = collections.Counter()
        for kind, arguments in process.instants:
            if kind == "late" and arguments.get("late_ns", 0):
                last[arguments["last_rank"]] += 1
                late[arguments["last_rank"]] += arguments["late_ns"]
        for rank, own in enumerate(counted):
            assert last[rank] == own["last_buckets"]
            assert late[rank] == own["late_ns"]


def test_a_signal_makes_ranks_record_for_a_while(tmp_path):
    done, flights = tmp_path / "done", tmp_path / "flights"

    def ask(running):
        for rank in range(2):
            running.wait_for(rank, "ready", timeout=60)
        for rank in range(2):
            running.send(rank, signal.SIGUSR2)
        parts = flights / f"timeline.{running.pids[0]}.ranks"
        end = time.monotonic() + 60
        while (
            not all(
                b'"type":"end"' in file.read_bytes()
                for rank in range(2)
                if (file := parts / f"rank.{rank}.jsonl").exists()
            )
            or len(list(parts.glob("*.jsonl"))) < 2
        ):
            assert time.monotonic() < end
            time.sleep(0.1)
        done.touch()

    run_ranks(
        rank_timeline.run_until,
        2,
        args=(str(done),),
        env={"KERAS_RING_FLIGHT_DIRECTORY": str(flights)},
        on_start=ask,
        deadline=120,
    )
    (parts,) = flights.glob("timeline.*.ranks")
    for rank in read(parts).ranks:
        steps = of_phase(rank, STEP)
        assert len(steps) > 10
        assert 4e9 < steps["end"].max() - steps["begin"].min() < 8e9


@pytest.mark.longer("faults")
def test_a_killed_rank_leaves_what_it_has_done(tmp_path):
    draws = random.Random(tiers.seed(5))
    for turn in range(tiers.amount(2, 20)):
        path, seconds = tmp_path / f"{turn}.json", draws.uniform(0.2, 1.5)
        run_ranks(
            rank_timeline.killed_at,
            2,
            args=(str(path), seconds),
            expect={0: ANY, 1: ANY},
        )
        parts = path.with_name(path.name + ".ranks")
        ranks = read(parts).ranks
        assert [rank.rank for rank in ranks] == [0, 1]
        steps = of_phase(ranks[1], STEP)["value"]
        assert steps.tolist() == [*range(len(steps))], seconds
        # Written ten times in a second.
        last = of_phase(ranks[0], STEP)["end"].max()
        assert last - ranks[1].spans["end"].max() < 1e9
