"""From rounds on hosts to the tables of `hosts.py`, without any host."""

import pytest

from benchmarks import hosts
from benchmarks.hosting import figures as figures_module
from benchmarks.hosting import named_cases, report, runs, systems, targets
from benchmarks.hosting.figures import (
    AS_GRADIENTS,
    FLOOR,
    MPI,
    OURS,
    Figures,
    Measured,
)
from benchmarks.hosting.layout import Layout, link_options, parse_layout
from benchmarks.hosting.targets import Place, Target
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.measure import Budget
from keras_ring.bench.record import Record

FAST = Place("2x1", "unlimited")
TEN = Place("2x1", "10gbit")


def measured(place, system, case, time_us, *, num_bytes=10**8, **more):
    link = HostLink(2, 1.0) if system == OURS else HostLink()
    record = Record(
        system=system,
        version="1",
        size=2,
        case=case,
        num_bytes=num_bytes,
        num_tensors=1,
        dtype="float32",
        op="Sum",
        **{
            "wire_bytes": num_bytes,
            "link": link,
            "times_us": (float(time_us),) * 9 + (2.0 * time_us,),
            "cpu_us": 2.0 * time_us,
            "memory_extra_bytes": 0,
            **more,
        },
    )
    return Measured(place, record)


ROUNDS = [
    measured(FAST, FLOOR, "4B", 200, num_bytes=4),
    measured(FAST, OURS, "4B", 340, num_bytes=4),
    *(measured(FAST, OURS, "resnet50", time) for time in (7000, 5000, 6000)),
    measured(FAST, MPI, "resnet50", 12000),
    measured(FAST, "torch gloo", "resnet50", 10000),
    measured(TEN, OURS, "resnet50", 120_000, cpu_us=40_000.0),
    measured(TEN, OURS, "resnet50:fp16", 60_000, wire_bytes=5 * 10**7),
    measured(TEN, MPI, "resnet50", 100_000, cpu_us=50_000.0),
]


def rows(figures):
    """Returns the table of targets, a dictionary a row."""
    header, _, *lines = report.target_table(figures).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    names = [cell.strip() for cell in header.split("|")]
    return [dict(zip(names, row, strict=True)) for row in cells]


def test_medians_of_rounds():
    # Another call of ours is no peer, however fast.
    figures = Figures([*ROUNDS, measured(FAST, AS_GRADIENTS, "resnet50", 1)])
    assert figures.median_us(FAST, "resnet50", OURS) == 6000.0
    assert figures.rounds(FAST, "resnet50", OURS) == 3
    assert figures.median_us(FAST, "resnet50", "Horovod MPI") is None
    assert figures.best_peer(FAST, "resnet50", figures.median_us) == 10000.0
    assert figures.best_peer(FAST, "4B", figures.median_us) is None
    # 10^8 bytes at 1 GB/s, whoever asks for float32.
    assert figures.bound_us(TEN, "resnet50") == pytest.approx(100_000.0)
    assert figures.bound_us(TEN, "resnet50:fp16") == pytest.approx(100_000.0)
    assert figures.tcp_gb_s(FAST) == [1.0, 1.0, 1.0]


def test_targets_hold_or_do_not():
    found = {
        (row["hosts"], row["link"], row["case"], row["at most"]): row
        for row in rows(Figures(ROUNDS))
    }
    row = found["2x1", "unlimited", "4B", "1 x no collective + 150 us"]
    assert (row["that is"], row["reached"], row["holds"]) == (
        *("0.35 ms", "0.34 ms (+140 us)", "yes"),
    )
    row = found["2x1", "unlimited", "resnet50", "0.65 x the best peer"]
    assert (row["that is"], row["reached"], row["holds"]) == (
        *("6.5 ms", "6 ms (0.60 x)", "yes"),
    )
    row = found["2x1", "10gbit", "resnet50", "1.15 x plain TCP"]
    assert (row["reached"], row["holds"]) == ("120 ms (1.20 x)", "no")
    row = found["2x1", "10gbit", "resnet50", "0.7 x the best peer's CPU time"]
    assert (row["that is"], row["reached"], row["holds"]) == (
        *("0.35 s/GB", "0.40 s/GB (0.80 x)", "no"),
    )
    # What was not measured is not there.
    assert len(found) == 4


def test_targets_that_are_our_own():
    place = Place("2x2", "unlimited")
    alone = Place("1x2", "unlimited")
    made = Figures(
        [
            *ROUNDS,
            measured(place, OURS, "resnet50", 10_000),
            measured(alone, OURS, "resnet50", 10_000),
            measured(alone, OURS, "vgg16", 45_000, num_bytes=5 * 10**8),
            measured(alone, OURS, "1MiB", 100),
        ]
    )
    holds = {(row["hosts"], row["case"]): row["reached"] for row in rows(made)}
    # Of 6 ms.
    assert holds["2x2", "resnet50"] == "10 ms (1.67 x)"
    assert holds["1x2", "vgg16"] == "45 ms (0.90 x)"
    assert holds["1x2", "1MiB"] == "0.11 ms (1.10 x)"


def test_sets_of_small_tensors_have_targets_as_gradients_too():
    alone = Place("1x2", "unlimited")
    made = Figures(
        [
            measured(alone, OURS, "mixed", 50_000),
            measured(alone, AS_GRADIENTS, "mixed", 20_000),
            measured(alone, MPI, "mixed", 16_000),
        ]
    )
    found = {
        row["at most"]: (row["reached"], row["holds"]) for row in rows(made)
    }
    assert found == {
        "1.3 x Open MPI": ("50 ms (3.12 x)", "no"),
        "1.3 x Open MPI, as gradients": ("20 ms (1.25 x)", "yes"),
    }


def test_every_target_names_a_case_that_there_is():
    for target in targets.TARGETS:
        assert named_cases.parse_case(target.case).name == target.case
        parse_layout(target.place.layout)
        link_options(target.place.link)
        assert target.case in targets.cases_at(target.place)


def test_cases_that_others_are_compared_with():
    assert "resnet50" in targets.cases_at(Place("1x4", "unlimited"))
    assert targets.cases_at(Place("9x9", "unlimited")) == []
    # 2x2 is compared with it.
    own = Target(FAST, "resnet50", targets.OWN, 1.5)
    assert own.case in targets.cases_at(FAST)


def test_markdown():
    text = report.as_markdown(
        Figures(ROUNDS),
        {"Horovod MPI": "no --horovod-python given"},
        [("2x1, 10gbit", "torch gloo", "took more than 3 s")],
    )
    assert "## 2x1, unlimited" in text
    assert "1.000 GB/s each way (1.000, 1.000, 1.000)" in text
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
    ]
    assert [
        *("resnet50", "100", "-", "6 (0.12)", "12 (0.24)", "10 (0.20)"),
        *("0.60", "0.06"),
    ] in lines
    assert ["4B", "4e-06", "0.2", "0.34", "-", "-", "-", "85000.00"] in lines
    # Against what peers do without compression.
    assert [
        *("resnet50:fp16", "100", "60 (1.20)", "-", "0.60", "0.60"),
    ] in lines
    assert "Absent: Horovod MPI: no --horovod-python given." in text
    assert "FAILED 2x1, 10gbit torch gloo took more than 3 s" in text


def test_kept_and_replayed(tmp_path, capsys):
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    first.write_text(figures_module.to_json(ROUNDS[:6], {"a": "b"}, []))
    failures = [("2x1, 10gbit", "Open MPI", "it said nothing")]
    second.write_text(figures_module.to_json(ROUNDS[6:], {}, failures))
    code = hosts.main(["--replay", str(first), str(second)])
    assert code == 0
    expected = report.as_markdown(Figures(ROUNDS), {"a": "b"}, failures)
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize(
    ("text", "name", "num_bytes", "compression"),
    [
        ("4B", "4B", 4, "none"),
        ("64KiB", "64KiB", 65536, "none"),
        ("resnet50", "resnet50", 4 * 25_557_032, "none"),
        ("many_small:bf16", "many_small:bf16", 1_024_000, "bf16"),
    ],
)
def test_named_cases(text, name, num_bytes, compression):
    case = named_cases.parse_case(text)
    assert (case.name, case.num_bytes) == (name, num_bytes)
    assert (case.compression, case.op) == (compression, "Sum")


@pytest.mark.parametrize("text", ["resnet", "4:zip", "", "12kB", "vgg16:"])
def test_what_is_no_case(text):
    with pytest.raises(ValueError, match=r"resnet50|fp16"):
        named_cases.parse_case(text)


def test_layouts():
    layout = parse_layout("2x4")
    assert layout == Layout(2, 4)
    assert (layout.size, str(layout)) == (8, "2x4")
    assert layout.host_list == "kr-h0:4,kr-h1:4"
    for text in ("2", "0x1", "2x", "2x1x1", "2x1000"):
        with pytest.raises(ValueError, match="HOSTSxRANKS"):
            parse_layout(text)


def test_links():
    assert link_options("unlimited") == ()
    assert link_options("10gbit") == ("--rate", "10gbit")
    for text in ("10", "fast", "0gbit", "10gbps"):
        with pytest.raises(ValueError, match="10gbit"):
            link_options(text)


@pytest.mark.parametrize(
    "words", ["--hosts=2", "--links=ten", "--cases=vgg", "--rounds=0"]
)
def test_bad_words(words, capsys):
    with pytest.raises(SystemExit) as ended:
        hosts.main([words])
    assert ended.value.code == 2
    assert words.partition("=")[0] in capsys.readouterr().err


class FakeLab:
    """Writes down how commands would run."""

    def on(self, host, *command):
        return ["on", host, *command]

    def run(self, host_list, *words):
        return ["run", host_list, *words]


def make_plans(tmp_path, **changes):
    options = {
        "openmpi": tmp_path,
        "torch_python": None,
        "horovod_python": None,
        **changes,
    }
    layout = Layout(2, 2)
    plans = systems.make_plans(
        systems.Starter(FakeLab(), layout), layout, **options
    )
    return {plan.name: plan for plan in plans}


def test_how_systems_are_started(tmp_path):
    plans = make_plans(tmp_path)
    assert plans[OURS].command[:3] == ("run", "kr-h0:2,kr-h1:2", "--")
    assert plans[FLOOR].environment == {"PEER_API": "none"}
    assert plans[AS_GRADIENTS].environment == {"PEER_API": "gradients"}
    mpi = plans[MPI].command
    assert mpi[:3] == ("on", "h0", str(tmp_path / "bin" / "mpirun"))
    words = " ".join(mpi)
    assert "--host kr-h0:2,kr-h1:2 -np 4 --bind-to none" in words
    assert plans["Horovod gloo"].environment["PEER_HOSTS"] == "kr-h0:2,kr-h1:2"


def test_what_is_absent_says_why(tmp_path):
    plans = make_plans(tmp_path, torch_python="/no/such/python")
    assert "mpirun (make engines)" in plans[MPI].missing
    assert "No such file" in plans["torch gloo"].missing
    assert plans["Horovod MPI"].missing == "no --horovod-python given"
    assert not plans[OURS].missing


def test_only_ours_is_compressed(monkeypatch):
    asked = []

    def run_system(plan, task, deadline):
        asked.append((plan.name, [case["name"] for case in task["cases"]]))
        return [], "it said nothing" if plan.name == MPI else ""

    monkeypatch.setattr(runs.rounds, "run_system", run_system)
    plans = [systems.Plan(name=name, command=()) for name in (FLOOR, OURS, MPI)]
    cases = [named_cases.parse_case(text) for text in ("4B", "4B:fp16")]
    _, failures = runs.run_place(
        FAST, plans, cases, Budget(), num_rounds=2, deadline=1.0
    )
    assert asked == [
        (FLOOR, ["4B"]),
        (OURS, ["4B", "4B:fp16"]),
        (MPI, ["4B"]),
        (OURS, ["4B", "4B:fp16"]),
        (MPI, ["4B"]),
        (FLOOR, ["4B"]),
    ]
    why = "it said nothing (0 of 1 cases were measured)"
    assert failures == [("2x1, unlimited", MPI, why)] * 2
