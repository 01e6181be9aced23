"""Statistics, and the loop that makes them, on a system that is a toy."""

import dataclasses
import json
import time
import weakref

import numpy as np
import pytest

from keras_ring.bench import contents, table
from keras_ring.bench.case import Case
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.measure import Budget, Meter
from keras_ring.bench.record import Record
from keras_ring.bench.system import Prepared

CASE = Case(name="toy", shapes=((10,), (5,)), op="Sum")


def make_record(**changes):
    fields = {
        "system": "toy",
        "version": "1",
        "size": 4,
        "case": "1000 B",
        "num_bytes": 1000,
        "num_tensors": 1,
        "dtype": "float32",
        "op": "Sum",
        "wire_bytes": 1000,
        "times_us": tuple(float(i) for i in range(1, 12)),
        "cpu_us": 20.0,
        "memory_extra_bytes": 4096,
    }
    return Record(**{**fields, **changes})


def test_statistics():
    record = make_record()
    assert record.median_us == 6.0
    assert record.percentile_us(10) == 2.0
    assert record.percentile_us(90) == 10.0
    # 1000 bytes in 6 us.
    assert record.algbw == pytest.approx(1000 / 6e-6 / 1e9)
    assert record.busbw == pytest.approx(record.algbw * 1.5)
    assert record.cpu_s_per_gb == pytest.approx(20e-6 * 1e6)
    assert make_record(size=1).busbw == 0.0


def test_json_and_back():
    record = make_record(
        control_bytes=8.0, phases_ns={"wait": 1.5}, link=HostLink(2, 0.25)
    )
    again = Record.from_dict(json.loads(json.dumps(record.to_dict())))
    assert again == record
    summary = json.loads(json.dumps(record.summary()))
    assert summary["median_us"] == 6.0
    assert summary["iterations"] == 11
    assert summary["check"] == "ok"
    assert "times_us" not in summary
    assert summary["cpu_s_per_gb"] == 20.0
    # 1000 bytes at 0.25 GB/s.
    assert (summary["hosts"], summary["link_gb_s"]) == (2, 0.25)
    assert (summary["link_bound_us"], summary["link_ratio"]) == (4.0, 1.5)


def test_json_of_one_host():
    summary = make_record().summary()
    assert summary["hosts"] == 1
    for field in ("link_gb_s", "link_bound_us", "link_ratio"):
        assert summary[field] is None


def test_case_json_and_back():
    assert Case.from_dict(json.loads(json.dumps(CASE.to_dict()))) == CASE


def test_table():
    columns = table.HEADER.split()
    assert columns[:3] == ["case", "bytes", "tensors"]
    assert len(table.row(make_record(case="x"))) == len(
        table.HEADER.replace("check", "ok")
    )
    assert table.row(make_record(case="x")).split() == [
        *("x", "1000", "1", "2.0", "6.0", "10.0"),
        *("0.167", "0.250", "-", "ok"),
    ]


def test_table_of_several_hosts():
    link = HostLink(2, 0.25)
    header = table.header(link)
    assert header.split()[-9:] == [
        *("bound", "us", "x", "bound", "CPU", "s/GB", "control", "B", "check")
    ]
    row = table.row(make_record(case="x", wire_bytes=500, link=link))
    assert len(row) == len(header.replace("check", "ok"))
    assert row.split()[-5:] == ["2.0", "3", "20", "-", "ok"]


def test_table_where_the_link_is_not_known():
    link = HostLink(2, problem="no way")
    assert table.row(make_record(case="x", link=link)).split()[-5:] == [
        *("-", "-", "20", "-", "ok")
    ]
    assert table.header(HostLink()) == table.HEADER


class Toy:
    """Two ranks; this is rank 0, and rank 1 is always twice as slow."""

    name, version, rank, size = "toy", "1", 0, 2

    def __init__(self):
        self.runs = self.resets = self.barriers = self.counted = 0
        self.wrong_run = None
        self.seconds = 0.0

    def barrier(self):
        self.barriers += 1
        self.counted += 1000  # what happens between the runs

    def gather(self, values):
        return np.stack([values, 2 * values])

    def counters(self):
        return {
            "wait_ns": 7 * self.counted,
            "control_bytes_sent": 2 * self.counted,
            "control_bytes_received": 3 * self.counted,
        }

    def prepare(self, case):
        results = [
            np.resize(contents.expected_period(case.op, i, 2), shape).astype(
                case.dtype
            )
            for i, shape in enumerate(case.shapes)
        ]

        def run():
            self.runs += 1
            self.counted += 1
            time.sleep(self.seconds)
            if self.runs == self.wrong_run:
                return [result + 1 for result in results]
            return results

        def reset():
            self.resets += 1

        expected = [contents.expected_period(case.op, i, 2) for i in (0, 1)]
        return Prepared(run, expected, reset)


def test_measure():
    toy = Toy()
    record = Meter(toy, Budget(iterations=6, warmup=3)).measure(CASE)
    # One that is checked, three for warming up, six measured.
    assert toy.runs == toy.resets == toy.barriers == 10
    assert len(record.times_us) == 6
    assert (record.num_bytes, record.num_tensors) == (60, 2)
    # What the barriers counted is not in it; the mean of 1 and 2 ranks is.
    assert record.phases_ns == {"wait": 7 * 1.5}
    # Of the rank with most.
    assert record.control_bytes == 3 * 2
    assert record.link == HostLink()


def test_what_is_compressed_takes_less_on_its_way():
    narrow = dataclasses.replace(CASE, compression="bf16")
    link = HostLink(2, 1.0)
    record = Meter(Toy(), Budget(iterations=1), link).measure(narrow)
    assert (record.num_bytes, record.wire_bytes) == (60, 30)
    assert record.link_bound_us == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("seconds", "iterations"),
    [
        # The slower rank takes 1/64 s a run.
        (0.0, 5),
        (0.25, 16),
        (100.0, 200),
    ],
)
def test_as_many_iterations_as_fit(seconds, iterations, monkeypatch):
    toy = Toy()
    meter = Meter(toy, Budget(seconds=seconds, warmup=2))
    monkeypatch.setattr(time, "perf_counter", _Clock(1 / 128))
    record = meter.measure(CASE)
    assert record.times_us == (1e6 / 64,) * iterations


class _Clock:
    """Goes on by a step each time that it is read."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize("wrong_run", [1, 6])
def test_the_first_and_the_last_result_are_checked(wrong_run):
    toy = Toy()
    toy.wrong_run = wrong_run
    meter = Meter(toy, Budget(iterations=3, warmup=2))
    with pytest.raises(contents.WrongResultError):
        meter.measure(CASE)


class _Forgetful(Toy):
    """Makes new results in each run, and looks whether older ones are left."""

    def prepare(self, case):
        prepared = super().prepare(case)
        made = []

        def run():
            assert [ref for ref in made if ref() is not None] == []
            results = [result.copy() for result in prepared.run()]
            made.extend(weakref.ref(result) for result in results)
            return results

        return Prepared(run, prepared.expected, prepared.reset)


def test_no_results_are_kept_while_others_are_made():
    Meter(_Forgetful(), Budget(iterations=3, warmup=2)).measure(CASE)


def test_records_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_record().size = 3
