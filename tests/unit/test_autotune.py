"""Autotune on jobs that are not there: simulated speeds, no clocks."""

import builtins
import json
import logging as python_logging
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_ring.core.autotune import worker as worker_module
from keras_ring.core.autotune.log_file import TuningLog
from keras_ring.core.autotune.proposals import OptunaProposals
from keras_ring.core.autotune.samples import Reading, Sampler
from keras_ring.core.autotune.search_space import Knob, defaults, knobs_of
from keras_ring.core.autotune.tuning import tuning
from keras_ring.core.autotune.tuning_cache import (
    KeptSettings,
    Kind,
    directory_of,
)
from keras_ring.core.autotune.verdict import MOST_PAIRS, Comparison
from keras_ring.core.autotune.worker import Autotune, TunedJob, Worker
from keras_ring.errors import ConfigurationError
from tests import tiers
from tests.unit.autotune_surfaces import KNOBS, Surface

DEFAULT = defaults(KNOBS)
# Samples of a tuning, at most: 3 warm-up, 20 tried, 3 finalists twice, 12
# pairs.
MOST_SAMPLES = 3 + 20 + 3 * 2 + 2 * MOST_PAIRS


def drive(surface, seed=0):
    """Tunes on a surface; returns the outcome and the trials."""
    machine = tuning(DEFAULT, OptunaProposals(KNOBS, seed), 3, 20)
    trials = [next(machine)]
    while True:
        try:
            score = surface.sample(trials[-1].setting)
            trials.append(machine.send(score))
        except StopIteration as stop:
            return stop.value, trials


# --- Whether it is worth it ---


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("drift", [0.0, 0.002])
def test_never_worse_than_the_default(noise, drift):
    """By more than 2 %, whatever the noise; nor without an end."""
    seed = tiers.seed(1)
    for number in range(tiers.amount(8, 200)):
        surface = Surface(seed + number, noise, drift)
        outcome, trials = drive(surface, number)
        assert len(trials) <= MOST_SAMPLES
        ratio = surface.speed(outcome.setting) / surface.speed(DEFAULT)
        assert ratio > 0.98, (seed + number, ratio)


def test_as_fast_as_the_best_of_a_grid():
    """Without noise: within 3 % of the best of 60 settings, mostly."""
    seed = tiers.seed(1)
    count = tiers.amount(20, 200)
    near = 0
    for number in range(count):
        surface = Surface(seed + number)
        outcome, _ = drive(surface, number)
        near += surface.speed(outcome.setting) > 0.97 * surface.best_of_grid()
    assert near >= 0.85 * count, (near, count)


def test_a_default_that_nothing_beats_is_kept():
    flat = Surface(0, noise=0.05)
    flat.speed = lambda setting: 1.0 if setting == DEFAULT else 0.9
    outcome, trials = drive(flat)
    assert outcome.setting == DEFAULT
    assert outcome.gain == 0.0
    assert {trial.phase for trial in trials} == {
        *("warmup", "explore", "repeat", "verify")
    }


def test_the_first_that_is_tried_is_the_default():
    _, trials = drive(Surface(3))
    assert [trial.setting for trial in trials[:4]] == [DEFAULT] * 4
    assert [trial.phase for trial in trials[:4]] == [*["warmup"] * 3, "explore"]


def test_pairs_are_measured_in_turns():
    _, trials = drive(Surface(3))
    turns = [t.setting == DEFAULT for t in trials if t.phase == "verify"]
    assert len(turns) >= 8
    assert turns == [True, False, False, True] * (len(turns) // 4)


# --- The verdict ---


def is_taken_for_better(ratio, noise, seed):
    draw = random.Random(seed)
    comparison = Comparison()
    while True:
        for _ in range(2):
            comparison.add(
                draw.lognormvariate(0.0, noise),
                ratio * draw.lognormvariate(0.0, noise),
            )
        verdict = comparison.is_better()
        if verdict is not None:
            return verdict


@pytest.mark.parametrize(
    ("ratio", "noise", "low", "high"),
    [
        (1.0, 0.03, 0.0, 0.05),  # 1 in 40 by the rule
        (0.98, 0.03, 0.0, 0.01),
        (0.98, 0.2, 0.0, 0.05),
        (1.05, 0.02, 0.9, 1.0),
        (1.2, 0.05, 0.99, 1.0),
    ],
)
def test_what_is_not_faster_is_rarely_taken_for_it(ratio, noise, low, high):
    count = 1000
    better = sum(is_taken_for_better(ratio, noise, i) for i in range(count))
    assert low * count <= better <= high * count


# --- Knobs ---


def test_knobs_that_the_user_has_set_are_held():
    rows = [
        ("fusion_threshold", "bytes", 2**26, 0, 2**50),
        ("linger", "microseconds", 0, 0, 2**50),
        ("part_bytes", "bytes", 128, 128, 128),
        ("allreduce_preference", "", 0, 0, 2),
        ("planned_bucket", "bytes", 2**24, 0, 2**50),
    ]
    names = [knob.name for knob in knobs_of(rows, {})]
    assert names == [
        "fusion_threshold",
        "linger",
        "allreduce_preference",
        "planned_bucket",
    ]
    held = {
        "KERAS_RING_CYCLE_TIME": "1",
        "KERAS_RING_ALLREDUCE": "tree",
        "KERAS_RING_PLANNED_BUCKET": "1048576",
    }
    assert [knob.name for knob in knobs_of(rows, held)] == ["fusion_threshold"]


@given(st.integers(0, 2**30), st.integers(1, 2**30), st.floats(0, 1), st.data())
def test_positions_and_values(low, span, position, data):
    knob = Knob("k", "bytes", low, low, low + span)
    assert low <= knob.at(position) <= low + span
    value = data.draw(st.integers(low, low + span))
    assert 0 <= knob.position(value) <= 1
    assert abs(knob.at(knob.position(value)) - value) <= 1e-6 * value
    assert knob.at(0.0) == low
    assert knob.at(1.0) == low + span


# --- Samples ---


def readings_of(step_seconds, num_bytes=1000, every=1):
    nanoseconds = 0
    for step, seconds in enumerate(step_seconds, 1):
        nanoseconds += round(seconds * 1e9)
        if step % every == 0:
            yield Reading(step, nanoseconds, step * num_bytes, step)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 20), st.integers(0, 5), st.integers(1, 4), st.integers(0, 30)
)
def test_a_sample_is_the_speed_of_its_steps(steps, settling, every, slow):
    """One slow step in it, such as a checkpoint, does not count."""
    sampler = Sampler(steps)
    sampler.restart(settling)
    seconds = [0.01] * 200
    for i in range(settling):
        seconds[i] = 5.0
    if steps >= 3 * every:
        seconds[settling + every + 1 + slow % steps] = 3.0
    for reading in readings_of(seconds, every=every):
        sample = sampler.add(reading)
        if sample is not None:
            assert sample == pytest.approx(1000 / 0.01)
            assert reading.steps >= settling + steps
            return
    pytest.fail("no sample")


def test_what_does_not_train_gives_no_sample():
    sampler = Sampler(1)
    sampler.restart(0)
    for _ in range(100):
        assert sampler.add(Reading(0, 0, 0, 0)) is None


# --- What is kept ---

KIND = Kind(cluster={"ranks": "2"}, tensors=10, num_bytes=4000)
OTHER = Kind(cluster={"ranks": "3"}, tensors=10, num_bytes=4000)
SETTING = {**DEFAULT, "linger": 70}


def test_a_setting_comes_back_for_the_same_kind_of_job_only(tmp_path):
    kept = KeptSettings(tmp_path / "new" / "folder")
    assert kept.find(KIND, KNOBS) is None
    kept.keep(KIND, DEFAULT, 0.0)
    kept.keep(KIND, SETTING, 0.1)
    assert kept.find(KIND, KNOBS) == SETTING
    assert kept.find(OTHER, KNOBS) is None
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


@settings(max_examples=50, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=100),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_garbage_is_an_error_that_names_the_file(tmp_path_factory, garbage):
    folder = tmp_path_factory.mktemp("kept")
    path = folder / KIND.file_name()
    path.write_bytes(garbage)
    with pytest.raises(ValueError, match=str(path)):
        KeptSettings(folder).find(KIND, KNOBS)


@pytest.mark.parametrize(
    "change",
    [
        {"keras_ring": "0.0.0"},
        {"format": 2},
        {"setting": {"linger": 1}},
        {"setting": {**SETTING, "linger": -1}},
        {"setting": {**SETTING, "linger": True}},
        {"setting": {**SETTING, "linger": 2**40}},
        {"setting": [1]},
    ],
)
def test_a_file_that_fits_nearly_is_refused(tmp_path, change):
    kept = KeptSettings(tmp_path)
    kept.keep(KIND, SETTING, 0.1)
    path = tmp_path / KIND.file_name()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=r"expected|kind of job|knobs"):
        kept.find(KIND, KNOBS)


def test_jobs_that_keep_at_once_leave_one_whole_file(tmp_path):
    kept = KeptSettings(tmp_path)

    def keep(value):
        for _ in range(50):
            kept.keep(KIND, {**DEFAULT, "linger": value}, 0.1)
            assert kept.find(KIND, KNOBS) is not None

    threads = [threading.Thread(target=keep, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.name for p in tmp_path.iterdir()] == [KIND.file_name()]


def test_where_settings_are_kept(tmp_path, monkeypatch):
    assert directory_of("off", {}) is None
    assert directory_of("/x", {}).as_posix() == "/x"
    cache = {"XDG_CACHE_HOME": "/c"}
    assert directory_of("", cache).as_posix() == "/c/keras_ring/autotune"
    monkeypatch.setenv("HOME", str(tmp_path))
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert directory_of("", environment).is_relative_to(tmp_path / ".cache")


# --- The worker ---


class FakeCore:
    """A job whose speed is that of a surface, and whose clock are its steps."""

    def __init__(self, surface):
        self.surface = surface
        self.setting = dict(DEFAULT)
        self.tuned = []
        self.counts = {
            "steps": 0, "step_ns": 0, "step_bytes": 0, "step_tensors": 0
        }  # fmt: skip
        self.error = ""

    def step(self):
        speed = self.surface.sample(self.setting)
        self.counts["steps"] += 1
        self.counts["step_ns"] += round(4000 / speed * 1e9 * 1e6)
        self.counts["step_bytes"] += 4000 * 10**6
        self.counts["step_tensors"] += 10

    def metrics(self):
        return dict(self.counts)

    def tune(self, name, value):
        if self.error:
            raise RuntimeError(self.error)
        self.tuned.append((name, value))
        self.setting[name] = value

    def is_initialized(self):
        return True

    def job_error(self):
        return ""


def make_worker(core, tmp_path, *, log="", machine=None):
    return Worker(
        TunedJob(
            core=core,
            knobs=KNOBS,
            tuning=machine
            or tuning(DEFAULT, OptunaProposals(KNOBS), warmup=1, max_samples=8),
            log=TuningLog(log, KNOBS),
            kept=KeptSettings(tmp_path / "kept"),
            cluster={"ranks": "2"},
            steps_per_sample=3,
        )
    )


def run(worker, core):
    for _ in range(2000):
        core.step()
        worker.tick()
        if worker.done:
            return
    pytest.fail("the tuning has no end")


@pytest.fixture
def lines(monkeypatch):
    """What is logged."""
    told = []
    monkeypatch.setattr(worker_module.notices, "warn", told.append)
    return told


def test_a_job_is_tuned_and_the_next_one_begins_so(tmp_path, lines):
    core = FakeCore(Surface(5))
    log = tmp_path / "log.csv"
    run(make_worker(core, tmp_path, log=str(log)), core)
    assert core.surface.speed(core.setting) > core.surface.speed(DEFAULT)
    rows = log.read_text().splitlines()
    assert rows[0] == (
        "time [s],phase,fusion_threshold [bytes],planned_bucket [bytes],"
        "linger [microseconds],part_bytes [bytes],one_lane_bytes [bytes],"
        "allreduce_preference,score [bytes/s]"
    )
    phases = [row.split(",")[1] for row in rows[1:-1]]
    assert list(dict.fromkeys(phases)) == [
        *("warmup", "explore", "repeat", "verify")
    ]
    assert rows[-1].startswith("# ")
    assert "faster than the default: fusion_threshold=" in rows[-1]
    assert len(lines) == 1
    assert "autotune is done" in lines[0]

    again = FakeCore(Surface(5))
    worker = make_worker(again, tmp_path)
    run(worker, again)
    assert again.setting == core.setting
    assert again.counts["steps"] < 10
    assert "kept from an earlier job" in lines[1]


def test_a_damaged_file_is_ignored_with_one_line(tmp_path, lines):
    core = FakeCore(Surface(5))
    run(make_worker(core, tmp_path), core)
    (path,) = (tmp_path / "kept").iterdir()
    path.write_text("{")
    again = FakeCore(Surface(5))
    run(make_worker(again, tmp_path), again)
    assert len([line for line in lines if "ignores a file" in line]) == 1
    assert again.counts["steps"] > 50


def test_what_cannot_be_kept_is_one_line(tmp_path, lines):
    (tmp_path / "kept").write_text("a file, no folder")
    core = FakeCore(Surface(5))
    run(make_worker(core, tmp_path), core)
    assert [line for line in lines if "cannot keep" in line]


def test_a_program_that_does_not_train_is_left_alone(tmp_path, lines):
    core = FakeCore(Surface(5))
    worker = make_worker(core, tmp_path)
    for _ in range(1000):
        worker.tick()
    assert not core.tuned
    assert not lines


def test_counters_in_motion_are_not_read(tmp_path):
    core = FakeCore(Surface(5))

    def moving():
        core.step()
        return dict(core.counts)

    core.metrics = moving
    worker = make_worker(core, tmp_path)
    for _ in range(100):
        worker.tick()
    assert not core.tuned


@pytest.mark.filterwarnings("error")
def test_a_failure_restores_the_defaults_and_is_told_once(tmp_path, lines):
    def broken():
        yield from ()
        raise ZeroDivisionError("no good")

    def failing():
        machine = tuning(DEFAULT, OptunaProposals(KNOBS), 0, 8)
        trial = next(machine)
        for _ in range(4):
            trial = machine.send((yield trial))
        yield from broken()

    core = FakeCore(Surface(5))
    autotune = Autotune(make_worker(core, tmp_path, machine=failing()), core)
    while autotune._thread.is_alive():
        core.step()
        autotune._thread.join(timeout=0.002)
    assert core.tuned
    assert core.setting == DEFAULT
    assert len(lines) == 1
    assert "autotune has failed" in lines[0]
    assert "ZeroDivisionError: no good" in lines[0]
    autotune.stop()


def test_the_end_of_the_job_is_no_failure(tmp_path, lines):
    core = FakeCore(Surface(5))
    core.is_initialized = lambda: False
    core.metrics = lambda: {}
    autotune = Autotune(make_worker(core, tmp_path), core)
    autotune._thread.join(timeout=10)
    autotune.stop()
    assert not lines


def test_without_optuna_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "optuna":
            raise ModuleNotFoundError("No module named 'optuna'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigurationError, match=r"pip install keras-ring\[autotune\]"
    ):
        OptunaProposals(KNOBS)


def test_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"AUTOTUNE_LOG is .*directory"
    ):
        TuningLog(str(tmp_path), KNOBS)


def test_a_log_whose_disk_is_full(lines):
    log = TuningLog("/dev/full", KNOBS)
    log.sample(1.0, "search", defaults(KNOBS), 2.0)
    log.end("kept", defaults(KNOBS))
    assert lines == [
        "cannot write /dev/full: No space left on device; the "
        "tuning goes on without it."
    ]


def test_optuna_is_silent(caplog):
    with caplog.at_level(python_logging.INFO):
        OptunaProposals(KNOBS).propose()
    assert not caplog.records
