"""Status pages as metrics: what they are called, and what they say."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from keras_ring.core import native
from keras_ring.observe.pages import read_page
from tests.unit.status_pages import UNITS, PageFile

pytest.importorskip("prometheus_client")
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from keras_ring.observe.metrics import PageCollector, series_of

ROOT = Path(__file__).resolve().parents[2]


def text_of(*pages):
    registry = CollectorRegistry()
    registry.register(PageCollector(lambda: pages))
    return generate_latest(registry).decode()


def samples_of(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def known_counters():
    """Returns all counters that there are, with their units."""
    return {name: unit for name, unit, _ in native.core().describe_metrics()}


@pytest.fixture
def every_metric(tmp_path):
    """The text for a page with every counter."""
    units = known_counters()
    file = PageFile(tmp_path, 1, 4)
    named = [
        [name, unit, 8192 + 8 * index]
        for index, (name, unit) in enumerate(units.items())
    ]
    file = PageFile(tmp_path, 1, 4, counters=named)
    for _, _, offset in named:
        file.write(offset, b"\x01")
    return text_of(read_page(file.path))


@pytest.mark.parametrize(
    "name, unit, expected, kind, scale",
    [
        ("late_ns", "ns", "late_seconds", "counter", 1e-9),
        ("control_bytes_sent", "bytes", "control_sent_bytes", "counter", 1),
        ("step_bytes", "bytes", "step_bytes", "counter", 1),
        ("arena_bytes_kept", "bytes", "arena_kept_bytes", "gauge", 1),
        ("buckets", "buckets", "buckets", "counter", 1),
        ("pending", "tensors", "pending_tensors", "gauge", 1),
        ("epoch", "epochs", "epoch", "gauge", 1),
        ("done_ns", "ns", "done_timestamp_seconds", "moment", 1),
        ("yet_unknown", "things", "yet_unknown", "counter", 1),
    ],
)
def test_names_and_units(name, unit, expected, kind, scale):
    series = series_of(name, unit)
    assert (series.name, series.kind, series.scale) == (
        f"keras_ring_{expected}",
        kind,
        scale,
    )


def test_what_they_say(tmp_path):
    file = PageFile(tmp_path, 1, 4, host='h"1')
    now = time.monotonic_ns()
    file.set(late_ns=1_500_000_000, data_bytes_sent=7, activity=2, done_ns=now)
    found = samples_of(text_of(read_page(file.path)))

    def value(name):
        labels = (("host", 'h"1'), ("job", "0123456789ab"), ("rank", "1"))
        return found.get((f"keras_ring_{name}", *labels))

    assert value("late_seconds_total") == 1.5
    assert value("data_sent_bytes_total") == 7
    assert value("running") == 1
    assert value("resident_memory_bytes") > 2**20
    assert found["keras_ring_job_ranks", ("job", "0123456789ab")] == 4
    assert abs(value("done_timestamp_seconds") - time.time()) < 10
    # Nothing was ever submitted.
    assert value("submitted_timestamp_seconds") is None
    activities = {
        dict(labels)["activity"]: value
        for (name, *labels), value in found.items()
        if name == "keras_ring_activity"
    }
    assert activities == {
        **dict.fromkeys(("compute", "data", "evaluate", "predict"), 0),
        "checkpoint": 1,
    }


def test_the_pages_of_tests_have_counters_of_the_core():
    assert set(UNITS.items()) <= set(known_counters().items())


def test_no_two_counters_have_one_name():
    units = known_counters()
    names = {series_of(name, unit).name for name, unit in units.items()}
    assert len(names) == len(units)


def test_prometheus_conventions(every_metric):
    """As Prometheus' own tool checks them."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: install Debian's prometheus")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=every_metric,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_shows_what_there_is(every_metric):
    text = (ROOT / "deploy/grafana/keras_ring.json").read_text()
    board = json.loads(text)
    expressions = [
        target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    expressions += [
        each["query"]["query"]
        for each in board["templating"]["list"]
        if each["type"] == "query"
    ]
    named = {
        name
        for expression in expressions
        for name in re.findall(r"keras_ring_\w+", expression)
    }
    assert len(named) > 15
    assert named <= {name for name, *_ in samples_of(every_metric)}
    # None is beside or above another.
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
