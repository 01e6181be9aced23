"""The gate: lanes, what runs again, and how it goes on."""

import json
import subprocess
import sys

import pytest

from tests.tiers import again, gate, lanes, selection
from tests.tiers.changes import ROOT
from tests.tiers.environments import ENVIRONMENTS
from tests.tiers.gate import Outcome, Progress, judge, run_lane
from tests.tiers.lanes import Lane, Skipped


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "FOLDER", ROOT / "build" / tmp_path.name)
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    monkeypatch.setattr(gate, "FOLDER", tmp_path / "tiers")
    return tmp_path / "tiers"


# Says that a test failed, as pytest with the option does.
FAILS = """
import json, sys
file = sys.argv[-1].partition("=")[2]
with open(file, "w") as output:
    for name in {names}:
        line = {{"test": name, "output": "the first output"}}
        output.write(json.dumps(line) + chr(10))
sys.exit(1)
"""
# Fails as often as the file has lines, and takes one away.
COUNTS = """
import pathlib, sys
file = pathlib.Path({file!r})
lines = file.read_text().splitlines()
file.write_text(chr(10).join(lines[1:]))
print("run again:", sys.argv[-1])
sys.exit(int(lines[0]) if lines else 0)
"""


def failing(tmp_path, codes, names=("tests/a.py::test_a",)):
    """Returns a lane that fails, whose tests return these codes again."""
    file = tmp_path / "codes"
    file.write_text("\n".join(map(str, codes)))
    return Lane(
        "fake",
        (sys.executable, "-c", FAILS.format(names=list(names))),
        1.0,
        kind="pytest",
        again=(sys.executable, "-c", COUNTS.format(file=str(file))),
    )


def test_a_lane_that_passes():
    outcome = Outcome()
    assert run_lane(Lane("fine", ("true",), 1.0), outcome)
    assert judge(outcome)
    assert outcome.took.keys() == {"fine"}


def test_a_lane_without_tests_is_fine():
    command = (sys.executable, "-c", "raise SystemExit(5)")
    outcome = Outcome()
    assert run_lane(Lane("empty", command, 1.0, kind="pytest"), outcome)
    assert judge(outcome)


def test_a_lane_that_breaks(capsys):
    outcome = Outcome()
    assert not run_lane(Lane("broken", ("false",), 1.0), outcome)
    assert not judge(outcome)
    assert "FAILED: lane broken" in capsys.readouterr().out


def test_pytest_that_does_not_end_its_run_is_broken():
    command = (sys.executable, "-c", "raise SystemExit(1)")
    outcome = Outcome()
    run_lane(Lane("cut", command, 1.0, kind="pytest"), outcome)
    assert outcome.broken == ["cut"]
    assert not judge(outcome)


def test_a_test_that_the_machine_broke(tmp_path, folder, capsys):
    outcome = Outcome()
    assert not run_lane(failing(tmp_path, [0, 0]), outcome)
    assert judge(outcome)
    said = capsys.readouterr().out
    assert "UNSTEADY: tests/a.py::test_a (fake) failed once" in said
    assert "  | the first output" in said
    kept = {path.name: path for path in (folder / "unsteady").iterdir()}
    name = "tests_a.py_test_a"
    assert kept[f"{name}.failed.txt"].read_text() == "the first output\n"
    for run in (1, 2):
        text = kept[f"{name}.again{run}.txt"].read_text()
        assert "run again: tests/a.py::test_a" in text


@pytest.mark.parametrize("codes", [[1], [0, 1]])
def test_a_test_that_fails_again(tmp_path, codes, capsys):
    outcome = Outcome()
    run_lane(failing(tmp_path, codes), outcome)
    assert not judge(outcome)
    said = capsys.readouterr().out
    assert "FAILED: tests/a.py::test_a (fake)" in said
    assert "UNSTEADY" not in said


def test_many_failures_are_the_change(tmp_path, capsys):
    names = [f"test_{i}" for i in range(again.MOST + 1)]
    outcome = Outcome()
    run_lane(failing(tmp_path, [], names), outcome)
    assert not judge(outcome)
    assert "too many to run again" in capsys.readouterr().out


@pytest.mark.gate
def test_what_pytest_says_of_failures(tmp_path):
    file = tmp_path / "failures"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *("tests/tiers/failing.py", "-n", "1", f"--failures={file}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout
    lane = Lane("fake", (), 1.0, kind="pytest")
    failures = again.failures_of_pytest(lane, file)
    outputs = {failure.name: failure.output for failure in failures}
    assert outputs.keys() == {
        "tests/tiers/failing.py::test_that_fails",
        "tests/tiers/failing.py::test_that_cannot_begin",
    }
    fails = outputs["tests/tiers/failing.py::test_that_fails"]
    assert "ValueError: of the test" in fails
    assert "what it printed" in fails


LOG = """\
1/2 Testing: one_test
1/2 Test: one_test
Output: fine
----
2/2 Testing: other_test
2/2 Test: other_test
Output: why it failed
"""


def test_what_ctest_says_of_failures(tmp_path, monkeypatch):
    logs = tmp_path / "build/x/Testing/Temporary"
    logs.mkdir(parents=True)
    (logs / "LastTestsFailed.log").write_text("2:other_test\n")
    (logs / "LastTest.log").write_text(LOG)
    monkeypatch.setattr(again, "ROOT", tmp_path)
    lane = Lane("fake", (), 1.0, kind="ctest", again=("build/x",))
    (failure,) = again.failures_of_ctest(lane)
    assert failure.name == "other_test"
    assert "why it failed" in failure.output
    assert "fine" not in failure.output


# --- What is planned ---


def names(plan, kind):
    return [lane.name for lane in plan if isinstance(lane, kind)]


def test_a_page_runs_little():
    plan = lanes.gate(["docs/faults.md"], 1)
    assert "cpp" in names(plan, Skipped)
    assert "keras2" in names(plan, Skipped)
    assert names(plan, Lane)[:3] == ["environment", "lint", "python"]
    files = selection.python_files(["docs/faults.md"], 1).chosen
    assert "unit/test_docs.py" in files
    assert "multiprocess/failures/test_failure.py" not in files


def test_an_adapter_runs_in_the_environment_of_its_framework():
    plan = names(lanes.gate(["keras_ring/torch/optimizer.py"], 1), Lane)
    assert plan[plan.index("pytorch") - 1] == "environment-pytorch"
    assert "keras2" not in plan
    plan = names(lanes.gate(["keras_ring/jax/optimizer.py"], 1), Lane)
    assert plan[plan.index("with_jax") - 1] == "environment-with_jax"
    assert "pytorch" not in plan and "keras2" not in plan
    plan = names(lanes.gate(["keras_ring/mxnet/trainer.py"], 1), Lane)
    assert plan[plan.index("with_mxnet") - 1] == "environment-with_mxnet"
    both = {"environment-keras2", "keras2", "environment-pytorch", "pytorch"}
    assert both <= {*names(lanes.gate(["csrc/capi/gpus.cc"], 1), Lane)}
    files = selection.python_files(["csrc/capi/gpus.cc"], 1).chosen
    assert not [
        file
        for file in files
        if file.startswith(("keras2", "pytorch", "with_"))
    ]


def test_the_core_runs_what_sanitizes_it():
    plan = lanes.gate(["csrc/control/controller.cc"], 1)
    assert {"cpp", "asan", "tsan", "fuzz", "bazel"} <= {*names(plan, Lane)}
    assert "package" in names(plan, Skipped)


CHANGED_CPP_TESTS = ("comm/host_group_test.cc", "control/controller_test.cc")
# Tells the tests of a build, and notes what it is called with.
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >>{calls}
case "$(basename "$0") $*" in
  ctest*-N*) printf '  Test  #1: a_test\\n  Test #22: b_test_3_of_4\\n' ;;
  ninja*) printf 'a_test: phony\\nb_test: phony\\nc_test: phony\\n' ;;
esac
"""


def fake_cpp_tools(path, monkeypatch, text):
    calls = path / "calls"
    for name in ("cmake", "ctest", "ninja"):
        tool = path / name
        tool.write_text(text.format(calls=calls))
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(path), prepend=":")
    return calls


def run_test_cpp(path, *words):
    command = ["sh", str(ROOT / "tools/test_cpp.sh"), "asan", *words]
    return subprocess.run(
        command, timeout=60, cwd=path, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "targets", "options"),
    [
        ((), "cpp_tests fuzzers", ""),
        (("", "^(c_test)$"), "fuzzers a_test b_test", " -E ^(c_test)$"),
        (("[ab]",), "a_test b_test", " -R [ab]"),
    ],
)
def test_of_cpp_tests_those_that_run_are_built(
    tmp_path, monkeypatch, words, targets, options
):
    calls = fake_cpp_tools(tmp_path, monkeypatch, TOOL)
    assert run_test_cpp(tmp_path, *words).returncode == 0
    said = calls.read_text().splitlines()
    (built,) = [line for line in said if "--build" in line]
    assert built == f"cmake --build build/asan --target {targets}"
    assert said[-1].startswith("ctest --test-dir build/asan --output-on-fail")
    assert " --output-junit tests.xml " in said[-1]
    assert said[-1].partition(" -j ")[2].partition(" ")[1:] == (
        (" ", options[1:]) if options else ("", "")
    )


@pytest.mark.parametrize("words", [(), ("d_test",), ("", "c_test")])
def test_a_cpp_test_that_nothing_builds_is_named(tmp_path, monkeypatch, words):
    tool = TOOL.replace("  Test #22: ", "  Test #22: d_test\\n  Test #23: ")
    calls = fake_cpp_tools(tmp_path, monkeypatch, tool)
    done = run_test_cpp(tmp_path, *words)
    assert done.returncode == 1
    assert "no target has the name of these tests: d_test" in done.stderr
    assert "--build" not in calls.read_text()


def test_a_changed_test_runs_whatever_it_takes():
    path = "tests/keras/test_parity.py"
    for seed in range(5):
        files = selection.python_files([path], seed).chosen
        assert "keras/test_parity.py" in files


@pytest.mark.parametrize("flavour", ["asan", "tsan"])
def test_a_changed_cpp_test_is_sanitized_whatever_it_takes(flavour):
    paths = [f"tests/cpp/{name}" for name in CHANGED_CPP_TESTS]
    every = [path.as_posix() for path in (ROOT / "csrc").rglob("*.cc")]
    for seed in range(5):
        chosen = selection.cpp_tests([*paths, *every], seed, flavour).chosen
        assert "host_group_test" in chosen
        assert [name for name in chosen if name.startswith("controller_test_")]


def test_in_doubt_all_lanes_run():
    assert names(lanes.gate(None, 1), Skipped) == []


def test_the_long_tier_has_all_groups():
    planned = names(lanes.long(1, 2), Lane)
    for path in (ROOT / "tests").glob("*/test_*.py"):
        group = path.parent.name
        lane = f"python-{group}"
        if group in ENVIRONMENTS and ENVIRONMENTS[group].is_only:
            lane = f"{group}-all"
        assert lane in planned
    assert len(planned) == len(set(planned))


def test_a_folder_with_settings_of_its_own_is_collected():
    planned = {lane.name: lane for lane in lanes.long(1, 2)}
    command = planned["python-keras2"].command
    collected = subprocess.run(
        (*command, "--collect-only", "-q"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert "tests/keras2/test_keras2.py::" in collected.stdout


# --- How the long tier goes on ---


@pytest.fixture
def commit(monkeypatch):
    now = {"head": "a" * 40, "clean": True}
    monkeypatch.setattr(gate, "head", lambda: now["head"])
    monkeypatch.setattr(gate, "is_clean", lambda: now["clean"])
    return now


def test_it_goes_on_after_what_has_passed(tmp_path, commit, capsys):
    file = tmp_path / "long.json"
    ran = tmp_path / "ran"
    first = Lane("first", ("sh", "-c", f"echo first >> {ran}"), 1.0)
    second = Lane("second", ("sh", "-c", f"echo second >> {ran}; false"), 1.0)
    mended = Lane("second", ("sh", "-c", f"echo mended >> {ran}"), 1.0)
    assert gate.run("All", [first, second], 7, Progress(file)) == 1
    progress = Progress(file)
    assert progress.seed == 7
    assert progress.passed.keys() == {"first"}
    assert gate.run("All", [first, mended], 7, progress) == 0
    assert ran.read_text().split() == ["first", "second", "mended"]
    assert "first: passed before" in capsys.readouterr().out
    # All have passed: the next run begins anew.
    assert Progress(file).passed == {}


@pytest.mark.parametrize("change", [{"head": "b" * 40}, {"clean": False}])
def test_of_another_tree_it_begins_anew(tmp_path, commit, change):
    file = tmp_path / "long.json"
    Progress(file).add("first", 1.0, 7)
    commit.update(change)
    assert Progress(file).passed == {}
    assert Progress(file).seed is None


def test_what_is_kept_can_be_damaged(tmp_path, commit):
    file = tmp_path / "long.json"
    file.write_text(json.dumps({"commit": "a" * 40}))
    assert Progress(file).passed == {}
    file.write_text("[")
    assert Progress(file).passed == {}


def test_times_are_kept(tmp_path, monkeypatch):
    file = tmp_path / "durations.json"
    file.write_text('{"asan": {"b_test": 7.0}, "lanes": {"lint": 3.0}}')
    monkeypatch.setattr(gate.durations, "FILE", file)
    report = tmp_path / "build" / "asan" / "tests.xml"
    report.parent.mkdir(parents=True)
    report.write_text(
        '<testsuite><testcase name="a_test" classname="a_test" time="4"/>'
        "</testsuite>"
    )
    plan = [Lane("asan", ("sleep", "0.01"), 1.0, kind="ctest"), Skipped("b")]
    assert gate.run("The gate", plan, seed=1, record=True) == 0
    assert json.loads(file.read_text()) == {
        "asan": {"a_test": 4.0, "b_test": 7.0},
        "lanes": {"lint": 3.0, "asan-build": 0.0},
    }
