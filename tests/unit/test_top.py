"""`keras-ring top` and `keras-ring status`, on pages that a test wrote."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from keras_ring.launch.cli import cli
from keras_ring.observe.directory import VARIABLE
from keras_ring.observe.record import record
from keras_ring.observe.view import view
from tests.unit.status_pages import JOB, PageFile
from tests.unit.test_live_view import looks, usual, waiting

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Makes pages where the commands look for them."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "status"))
    return lambda *given, **told: PageFile(tmp_path / "status", *given, **told)


def lines_of(job, rows=100, width=80):
    """Returns the lines of a frame in a terminal."""
    console = pytest.importorskip("rich.console")
    from keras_ring.observe.screen import frame

    out = io.StringIO()
    console.Console(file=out, width=width).print(frame(job, rows=rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_frame_fits_into_80_columns():
    job = looks({2: {"last_buckets": 142, "late_ns": 2.0, "data_wait_ns": 2}})
    lines = lines_of(job)
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("job 0123456789ab   4 ranks on node1   0:00:10")
    assert lines[1].startswith("10.0 steps/s  1,280 samples/s  epoch 2")
    assert lines[2].startswith("71% of the buckets waited for rank 2")
    table = lines[lines.index("") + 1 :]
    assert table[0].split()[:3] == ["rank", "steps/s", "comm"]
    assert [row.split()[0] for row in table[1:]] == ["0", "1", "2", "3"]
    row = "2 10.0 10% 20% 71% 14.1 ms 0 1.0 GiB compute 1002"
    assert table[3].split() == row.split()


def test_many_ranks_on_several_hosts():
    changes = {
        100: {"last_buckets": 190, "late_ns": 3.0},
        511: {"data_wait_ns": 3.0},
    }
    job = looks(changes, size=512)
    lines = lines_of(job, rows=10)
    assert max(map(len, lines)) <= 80
    assert len(lines) < 20
    assert "and 502 more" in lines
    shown = {line.split()[0] for line in lines[4:] if line}
    assert {"100", "511"} <= shown


def test_ranks_that_others_wait_for_are_shown():
    lines = lines_of(waiting({3: {"activity": 1}}), rows=1)
    assert "Ranks 0-2 wait for rank 3" in lines[2]
    assert lines[-2].split()[0] == "3"
    assert lines[-1] == "and 3 more"


def test_errors_and_ranks_that_are_not_seen(pages):
    from keras_ring.observe.pages import read_page

    file = pages(0, 4)
    file.fail("lost rank 1 [bold] of host h2")
    lines = lines_of(view((), [read_page(file.path)]))
    assert lines[-2:] == [
        "3 not seen here",
        "rank 0: lost rank 1 [bold] of host h2",
    ]


def test_status_as_json(pages, capsys):
    file = pages(0, 2)
    pages(1, 2).set(activity=1, pending=7)
    file.set(samples=100)
    adding = threading.Timer(0.1, lambda: file.set(samples=600))
    adding.start()
    assert cli.main(["status", "--json", "--interval", "0.5"]) == 0
    adding.join()
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["job"], told["size"]) == (JOB, 2)
    assert told["ranks"][1]["activity"] == "data"
    assert told["ranks"][1]["pending"] == 7
    assert 500 < told["samples_per_second"] <= 1000
    assert told["unseen"] == []


def test_status_in_words(pages, capsys):
    pages(0, 1)
    assert cli.main(["status", "--interval", "0.01"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "command: python train.py" in out
    assert "hosts: node1" in out


def test_there_is_no_such_job(pages, capsys):
    for words in (["status", "--json"], ["top", "--once"]):
        assert cli.main(words) == 1
        assert "no job of yours runs" in capsys.readouterr().err
    pages()
    assert cli.main(["status", "ffff"]) == 1
    assert f"there are: {JOB}" in capsys.readouterr().err


def test_several_jobs_are_listed(pages, capsys):
    pages(0, 2)
    pages(0, 1, job="abcdefabcdef", command="python other.py")
    assert cli.main(["top", "--once"]) == 2
    err = capsys.readouterr().err
    assert "2 jobs, name one of them" in err
    assert f"{JOB}  2 ranks  python train.py" in err
    assert "abcdefabcdef  1 ranks  python other.py" in err
    assert cli.main(["status", "abc", "--interval", "0.01"]) == 0


@pytest.mark.parametrize(
    "words, text",
    [
        (["top", "--interval", "0"], "--interval 0.0: expected seconds"),
        (["status", "--interval", "nan"], "--interval nan"),
        (["top", "--rows", "0"], "--rows 0: expected at least 1"),
    ],
)
def test_bad_usage(pages, capsys, words, text):
    assert cli.main(words) == 2
    assert text in capsys.readouterr().err


def test_nothing_is_shown_where_pages_are_off(monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "off")
    assert cli.main(["status"]) == 2
    assert "is off" in capsys.readouterr().err


def test_others_may_not_prepare_pages(pages, tmp_path, capsys):
    pages()
    (tmp_path / "status").chmod(0o777)
    assert cli.main(["status"]) == 2
    assert "cannot be trusted" in capsys.readouterr().err


def test_without_rich_it_says_what_to_install(pages, monkeypatch, capsys):
    pages()
    monkeypatch.setitem(sys.modules, "keras_ring.launch.cli.top_screen", None)
    monkeypatch.delitem(sys.modules, "keras_ring.launch.cli.top_screen")
    for name in [each for each in sys.modules if each.startswith("rich")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(["top", "--once"]) == 2
    assert "pip install 'keras-ring[top]'" in capsys.readouterr().err


def test_one_frame_is_plain_text(pages, capsys):
    pytest.importorskip("rich")
    for rank in range(30):
        pages(rank, 30).set(
            **{
                name: value
                for name, value in usual(1).items()
                if isinstance(value, int)
            }
        )
    assert cli.main(["top", "--once", "--interval", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "and 10 more" in out


def test_a_view_that_follows_the_job_until_its_end(pages):
    """In a terminal of its own, in which the job goes on and ends."""
    pytest.importorskip("rich")
    master, slave = os.openpty()
    file = pages()
    watcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "keras_ring", "top"),
            *("--interval", "0.05"),
        ],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"},
    )
    os.close(slave)
    text = b""
    end = time.monotonic() + 30
    try:
        for step in range(1, 10**9):
            file.set(fit_steps=step * 10, epoch=41)
            text += os.read(master, 1 << 16)
            assert time.monotonic() < end
            if text.count(b"epoch 41") > 3:
                break
        file.path.unlink()
        while b"has ended" not in text:
            text += os.read(master, 1 << 16)
            assert time.monotonic() < end
        assert watcher.wait(10) == 0
    finally:
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
        os.close(master)


def test_the_page_and_its_picture_are_current():
    pytest.importorskip("rich")
    from tools import make_top_picture

    page = (ROOT / "docs/watching.md").read_text()
    assert f"```\n{make_top_picture.text()}\n```" in page
    picture = make_top_picture.picture()
    assert picture == (ROOT / "docs/images/top.svg").read_text(), (
        "run `make docs`"
    )
    assert "http" not in re.sub(
        r"<!--.*?-->|http://www.w3.org/\S*", "", picture
    )


def test_the_page_lists_the_keys():
    page = (ROOT / "docs/watching.md").read_text()
    told = record(looks())
    section = page.partition("status --json`\n")[2]
    for key in {**told, **told["ranks"][0]}:
        assert f"`{key}`" in section, key
