"""From recorded rounds to the table and the page of `compare.py`."""

import base64
import re
import xml.etree.ElementTree

import pytest

from benchmarks.comparing import plan, plots, report, table
from benchmarks.comparing.comparison import Comparison, merge
from keras_ring.bench.record import Record


def record(system, case, times, num_bytes=2 << 20, num_tensors=1, **more):
    return Record(
        system=system,
        version=f"{system} 1.0",
        size=2,
        case=case,
        num_bytes=num_bytes,
        num_tensors=num_tensors,
        dtype="float32",
        op="Sum",
        wire_bytes=num_bytes,
        times_us=tuple(map(float, times)),
        **{"cpu_us": 4000.0, "memory_extra_bytes": 3 << 20, **more},
    )


PHASES = {"wait": 100e3, "reduce": 200e3, "callback": 50e3, "other": 1e3}


def make_comparison(phases=None):
    """Two systems and a floor, whose ratios are easily seen."""
    phases = PHASES if phases is None else phases
    records = [
        record("none", "2 MiB", [100, 100, 100], memory_extra_bytes=1 << 20),
        record("keras_ring", "2 MiB", [300, 400, 500], phases_ns=phases),
        record("mpi", "2 MiB", [200, 200, 200]),
        record("none", "4 B", [100], num_bytes=4),
        record("keras_ring", "4 B", [150], num_bytes=4, phases_ns=phases),
        record("keras_ring", "2 MiB in 1", [400], phases_ns=phases),
        record("keras_ring", "2 MiB in 9", [800], num_tensors=9),
        record("keras_ring", "2 MiB in 9 grouped", [500], num_tensors=9),
    ]
    return Comparison(
        facts={"CPU": "a <fast> one", "ranks": 2},
        yardsticks={"memcpy": 12.345},
        sections={
            "ladder": ["4 B", "2 MiB"],
            "sweep": ["2 MiB in 1", "2 MiB in 9", "2 MiB in 9 grouped"],
        },
        systems=["none", "keras_ring", "mpi"],
        records=records,
        failures=[("tf.distribute", "took more than 3 s")],
        skipped=[("horovod", "horovod is not installed")],
    )


def test_rows_and_ratios():
    rows = [
        dict(zip(table.COLUMNS, row, strict=True))
        for row in table.rows(make_comparison(), "ladder")
    ]
    assert [(row["case"], row["system"]) for row in rows] == [
        ("4 B", "none"),
        ("4 B", "keras_ring"),
        ("2 MiB", "none"),
        ("2 MiB", "keras_ring"),
        ("2 MiB", "mpi"),
    ]
    assert rows[3] == {
        "case": "2 MiB",
        "system": "keras_ring",
        "p10 us": "320.0",
        "median us": "400.0",
        "p90 us": "480.0",
        # 2 MiB in 400 us; twice 1/2 of it on each of two links.
        "busbw GB/s": "5.243",
        "x floor": "4.00",
        "x MPI": "2.00",
        # 4 ms for 2 MiB.
        "CPU s/GB": "1.91",
    }
    assert [row["x floor"] for row in rows] == [
        *("1.00", "1.50", "1.00", "4.00", "2.00")
    ]
    assert [row["x MPI"] for row in rows] == ["-", "-", "0.50", "2.00", "1.00"]
    assert [row["CPU s/GB"] for row in rows[:2]] == ["-", "-"]


def test_memory_rows():
    assert table.memory_rows(make_comparison()) == [
        ("none", "none 1.0", "3", "+0"),
        ("keras_ring", "keras_ring 1.0", "3", "+0"),
        ("mpi", "mpi 1.0", "3", "+0"),
    ]
    comparison = make_comparison()
    comparison.records = [
        each
        for each in comparison.records
        if (each.system, each.case) != ("none", "4 B")
    ]
    assert [row[2:] for row in table.memory_rows(comparison)] == [
        *(("1", "+0"), ("3", "+2"), ("3", "+2"))
    ]


def test_text():
    text = table.as_text(make_comparison())
    assert re.search(
        r"^2 MiB +keras_ring +320\.0 +400\.0 +480\.0 .* 4\.00 +2\.00 +1\.91$",
        text,
        re.MULTILINE,
    )
    assert "skipped horovod: horovod is not installed" in text
    assert "FAILED tf.distribute: took more than 3 s" in text


def test_merge():
    rounds = [
        record("a", "x", [1, 2], cpu_us=1.0, phases_ns={"wait": 1.0}),
        record("b", "x", [7], memory_extra_bytes=1),
        record("a", "x", [3, 4], cpu_us=5.0, phases_ns={"wait": 5.0}),
        record("a", "x", [9], cpu_us=2.0, phases_ns={"wait": 2.0}),
        record("b", "x", [8], memory_extra_bytes=9, control_bytes=4.0),
    ]
    first, second = merge(rounds)
    assert first.times_us == (1.0, 2.0, 3.0, 4.0, 9.0)
    assert first.median_us == 3.0
    assert first.cpu_us == 2.0
    assert first.phases_ns == {"wait": 2.0}
    assert first.control_bytes is None
    assert second.memory_extra_bytes == 9
    assert second.control_bytes == 4.0


def test_recorded_and_read_again():
    comparison = make_comparison()
    assert Comparison.from_json(comparison.to_json()) == comparison


def images(page):
    """Returns the page's plots as XML trees, by title."""
    found = re.findall(
        r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)">', page
    )
    return {
        title: xml.etree.ElementTree.fromstring(base64.b64decode(image))
        for title, image in found
    }


def test_page():
    page = report.as_html(make_comparison())
    assert "<td>400.0</td>" in page
    assert "<td>4.00</td><td>2.00</td><td>1.91</td>" in page
    assert "<td>a &lt;fast&gt; one</td>" in page
    assert "<td>12.3 GB/s</td>" in page
    assert "horovod is not installed" in page
    assert "Failed: tf.distribute: took more than 3 s" in page
    assert report.NO_PHASES not in page
    assert "http" not in re.sub(r'src="[^"]+"', "", page), "loads something"
    assert list(images(page)) == [
        "Time against size",
        "Bandwidth against size",
        "Time against the number of tensors",
        "Where a step&#39;s time goes",
    ]


def test_page_without_phases():
    page = report.as_html(make_comparison(phases={}))
    assert report.NO_PHASES.split(":")[0] in page
    assert len(images(page)) == 3


def test_page_of_nothing_but_failures():
    comparison = make_comparison()
    comparison.records = []
    page = report.as_html(comparison)
    assert "took more than 3 s" in page
    assert "took more than 3 s" in table.as_text(comparison)


def test_bars_are_the_phases_shares(monkeypatch):
    seen = []
    finish = plots._finish
    monkeypatch.setattr(
        plots,
        "_finish",
        lambda figure, axes: seen.append(axes) or finish(figure, axes),
    )
    plots.phases(make_comparison())
    (axes,) = seen
    names = [bars.get_label() for bars in axes.containers]
    assert names == ["wait", "reduce", "callback", "other"]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    row = labels.index("2 MiB, keras_ring")
    # Of 400 us: 100 waiting, then 200 reducing.
    wait, reduce = (axes.containers[i].patches[row] for i in (0, 1))
    assert (wait.get_x(), wait.get_width()) == (0.0, 0.25)
    assert (reduce.get_x(), reduce.get_width()) == pytest.approx((0.25, 0.5))


def test_variants():
    assert plan.parse_variant("a:X=1,Y=b=c") == ("a", {"X": "1", "Y": "b=c"})
    for text in ("a", "a:", ":X=1", "a:X", "a:X=1,,", "a:=1"):
        with pytest.raises(ValueError, match="name:KEY=VALUE"):
            plan.parse_variant(text)


def test_plans():
    plans = plan.make_plans(3, [("tuned", {"KERAS_RING_X": "1"})])
    by_name = {each.name: each for each in plans}
    assert list(by_name) == [
        *("none", "keras_ring", "tuned", "mpi", "torch gloo", "horovod"),
        "tf.distribute",
    ]
    assert by_name["mpi"].missing == "no --mpi-python given"
    assert by_name["tuned"].command == by_name["keras_ring"].command
    assert plan.environment_of(by_name["tuned"])["KERAS_RING_X"] == "1"
    assert by_name["none"].command[3:6] == ("run", "-np", "3")
    addresses = plan.environment_of(by_name["tf.distribute"])["PEER_ADDRESSES"]
    assert len(set(addresses.split(","))) == 3


def test_a_python_without_mpi(tmp_path):
    plans = plan.make_plans(2, mpi_python=tmp_path / "python")
    (mpi,) = [each for each in plans if each.name == "mpi"]
    assert "cannot be imported" in mpi.missing


def test_sections():
    made = plan.make_sections(
        ("ladder", "steps", "sweep"),
        sizes=[4, 64],
        sweep_bytes=4096,
        sweep_tensors=[1, 8],
    )
    names = {section: [c.name for c in made[section]] for section in made}
    assert names == {
        "ladder": ["allreduce 4 B", "allreduce 64 B"],
        "steps": [
            *("resnet50", "resnet50 fresh", "many_small"),
            *("resnet50 grouped", "resnet50 fresh grouped"),
            "many_small grouped",
        ],
        "sweep": [
            *("4 KiB in 1", "4 KiB in 8"),
            *("4 KiB in 1 grouped", "4 KiB in 8 grouped"),
        ],
    }
    assert {c.num_bytes for c in made["sweep"]} == {4096}
    assert {c.op for cases in made.values() for c in cases} == {"Sum"}
