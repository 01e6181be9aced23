"""Jobs that are tuned while they train."""

import csv
import json

import pytest

from tests.harness import ANY, run_ranks
from tests.multiprocess.autotune import rank_autotune

# As few samples as make all phases.
SHORT = {
    "KERAS_RING_AUTOTUNE": "1",
    "KERAS_RING_AUTOTUNE_WARMUP_SAMPLES": "1",
    "KERAS_RING_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "KERAS_RING_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "4",
}
MOST_STEPS = 20_000


def train(tmp_path, log, hosts, **more):
    path = tmp_path / log
    result = run_ranks(
        rank_autotune.trains_until_tuned,
        len(hosts),
        args=(str(path), MOST_STEPS),
        hosts=hosts,
        deadline=120,
        env={
            **SHORT,
            "KERAS_RING_AUTOTUNE_LOG": str(path),
            "KERAS_RING_AUTOTUNE_CACHE": str(tmp_path / "kept"),
            **more,
        },
    )
    return result, path


def rows_of(path):
    *rows, last = path.read_text().splitlines()
    return list(csv.DictReader(rows)), last


@pytest.mark.parametrize(
    "hosts",
    [
        [0, 0],
        pytest.param([0, 0, 1], marks=pytest.mark.long("programs")),
        pytest.param([0, 1, 2], marks=pytest.mark.long("programs")),
    ],
)
def test_a_job_is_tuned_and_the_next_begins_with_what_was_found(
    tmp_path, hosts
):
    """No bit of its sums changes; `trains_until_tuned` compares them."""
    result, log = train(tmp_path, "first.csv", hosts)
    (steps, _, after, settings), *others = result.values
    assert settings >= 4, "not everything was tried"
    assert all(value[1] == value[2] for value in others), "rank 0 has them"
    rows, last = rows_of(log)
    assert [row["phase"] for row in rows[:5]] == ["warmup", *["explore"] * 4]
    assert {row["phase"] for row in rows[5:]} <= {"repeat", "verify"}
    assert all(float(row["score [bytes/s]"]) > 0 for row in rows)
    assert last.startswith("# ")
    (kept,) = (tmp_path / "kept").iterdir()
    found = json.loads(kept.read_text())
    assert found["step"] == {"tensors": 7, "bytes": 4 * 341_026}
    assert found["cluster"]["ranks"] == str(len(hosts))
    assert found["setting"].items() <= after.items()
    assert "autotune is done" in result.ranks[0].stderr
    print(f"{steps} steps, {settings} settings: {last}")

    # The next job, with something in the file that no default is.
    found["setting"]["linger"] = 7
    kept.write_text(json.dumps(found))
    result, log = train(tmp_path, "second.csv", hosts)
    again, _, after, _ = result.values[0]
    assert after["linger"] == 7
    assert again < steps
    rows, last = rows_of(log)
    assert not rows
    assert "kept from an earlier job" in last


def test_what_is_tuned_by_hand():
    result = run_ranks(rank_autotune.tuned_by_hand, 2)
    (told, linger), (others, unchanged) = result.values
    assert told["known"] == "done"
    assert "no 'x' to tune; it has fusion_threshold" in told["unknown"]
    assert "linger cannot be -1: expected a number from 0" in told["bad"]
    assert linger == 10
    assert unchanged == 0
    for text in others.values():
        assert text.startswith("FAILED_PRECONDITION")
        assert "rank 1: only rank 0 decides" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"KERAS_RING_AUTOTUNE_LOG": "/no/such/folder"}, "_LOG is '/no/such"),
        ({"KERAS_RING_AUTOTUNE_STEPS_PER_SAMPLE": "0"}, "an integer from 1"),
    ],
)
def test_what_is_wrong_is_told_at_the_start(more, message):
    assert message in start_error(more)


def test_without_optuna_the_job_does_not_start():
    text = start_error({}, without_optuna=True)
    assert "pip install keras-ring[autotune]" in text


def start_error(more, *, without_optuna=False):
    result = run_ranks(
        rank_autotune.init_error,
        2,
        args=(without_optuna,),
        env={**SHORT, **more},
        expect={1: ANY},
    )
    kind, text = result.values[0]
    assert kind == "ConfigurationError"
    return text
