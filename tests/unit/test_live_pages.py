"""Reading status pages: what is one, what is none, which job is meant."""

import os
import signal
import struct
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_ring.errors import ConfigurationError
from keras_ring.observe import directory, jobs, process
from keras_ring.observe.pages import read_page
from keras_ring.protocol.job_id import job_id
from tests.unit.status_pages import JOB, PageFile


@pytest.fixture
def child():
    """A process that waits."""
    started = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    )
    yield started
    started.kill()
    started.communicate()


def dead_pid():
    """Returns the id of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_a_page_says_what_was_written(tmp_path):
    file = PageFile(tmp_path, rank=2, size=4)
    file.set(samples=2**63 + 5, pending=3)
    file.fail("lost rank 1\n\x1b[31m")
    page = read_page(file.path)
    assert (page.rank, page.size, page.host) == (2, 4, "node1")
    assert page.counters["samples"] == 2**63 + 5
    assert page.counters["pending"] == 3
    assert page.units["late_ns"] == "ns"
    assert page.error == "lost rank 1  [31m"
    assert page.alive and not page.stopped
    assert page.memory > 2**20
    assert abs(page.unix_ns(page.read_ns) - time.time_ns()) < 10**9


def test_a_process_that_stands_still_or_has_ended(tmp_path, child):
    file = PageFile(tmp_path, pid=child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert read_page(file.path).stopped
    os.kill(child.pid, signal.SIGKILL)
    # Nobody has waited for it: it is there, but it is dead.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    page = read_page(file.path)
    assert (page.alive, page.stopped, page.memory) == (False, False, 0)


def test_an_id_that_another_process_has_now(tmp_path, child):
    hour = 3600 * 10**9
    file = PageFile(
        tmp_path, pid=child.pid, started_ns=time.monotonic_ns() - hour
    )
    assert not read_page(file.path).alive


@pytest.mark.parametrize(
    "told",
    [
        {"rank": 4, "size": 4},
        {"size": 0},
        {"pid": None},
        {"host": None, "counters": [["late_ns", "ns"]]},
        {"counters": [["late_ns", "ns", 16]]},
        {"counters": [["late_ns", "ns", 12288]]},
        {"counters": [["late_ns", "ns", "8192"]]},
        {"counters": 7},
        {"started_ns": float("inf")},
    ],
)
def test_pages_that_make_no_sense(tmp_path, told):
    assert read_page(PageFile(tmp_path, size=4).path) is not None
    assert read_page(PageFile(tmp_path, **{"size": 4, **told}).path) is None


@pytest.mark.parametrize(
    "offset, data",
    [
        (0, b"KRSTATUX"),
        (8, struct.pack("<I", 2)),
        (12, struct.pack("<I", 9000)),
        (64, b"\xff\xfe"),
        (64, b"[" * 4000),
    ],
)
def test_files_that_are_no_pages(tmp_path, offset, data):
    file = PageFile(tmp_path)
    file.write(offset, data)
    assert read_page(file.path) is None


@given(st.binary(max_size=80), st.integers(0, 12400))
@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_bytes_are_a_page_or_none(tmp_path, data, offset):
    file = PageFile(tmp_path)
    file.write(offset, data)
    read_page(file.path)


def test_files_that_cannot_be_trusted(tmp_path):
    file = PageFile(tmp_path)
    file.path.chmod(0o622)
    assert read_page(file.path) is None
    file.path.chmod(0o600)
    assert read_page(file.path) is not None
    moved = file.path.with_name("moved")
    file.path.rename(moved)
    file.path.symlink_to(moved)
    assert read_page(file.path) is None
    file.path.unlink()
    os.mkfifo(file.path)
    assert read_page(file.path) is None
    file.path.unlink()
    file.path.write_bytes(moved.read_bytes()[:-1])
    assert read_page(file.path) is None


def test_a_page_of_another_rank_or_job(tmp_path):
    path = PageFile(tmp_path).path
    elsewhere = path.rename(path.with_name(f"rank.1.{os.getpid()}.page"))
    assert read_page(elsewhere) is None
    other = tmp_path / "0123456789ac"
    other.mkdir()
    assert read_page(elsewhere.rename(other / path.name)) is None


def test_jobs_with_one_key_do_not_hide_each_other(tmp_path, child):
    # Each left the page of the other alone: whoever lives is shown, of two that
    # do the later one, and of two dead.
    dead = PageFile(tmp_path, pid=dead_pid())
    dead.fail("as the first job ended")
    (page,) = jobs.find_jobs(tmp_path)[0].pages
    assert page.error == "as the first job ended"
    now = time.time_ns()
    PageFile(tmp_path, pid=child.pid, started_unix_ns=now - 10**12)
    (page,) = jobs.find_jobs(tmp_path)[0].pages
    assert page.pid == child.pid
    PageFile(tmp_path)
    (found,) = jobs.find_jobs(tmp_path)
    assert [page.pid for page in found.pages] == [os.getpid()]
    assert found.runs


def test_ranks_of_an_elastic_job_are_those_that_it_has_now(tmp_path, child):
    now = time.time_ns()
    before, after = now - 10**10, now - 10**9
    # There were three, of which rank 0 was killed. The others have pages of
    # the time before, with an error, and of now.
    PageFile(tmp_path, 0, 3, pid=dead_pid(), started_unix_ns=before)
    for pid, rank in ((os.getpid(), 1), (child.pid, 2)):
        told = {"pid": pid, "started_unix_ns": before}
        PageFile(tmp_path, rank, 3, **told).fail("lost rank 0")
        told["started_unix_ns"] = after
        PageFile(tmp_path, rank - 1, 2, **told)
    (found,) = jobs.find_jobs(tmp_path)
    assert [(page.rank, page.pid, page.size) for page in found.pages] == [
        (0, os.getpid(), 2),
        (1, child.pid, 2),
    ]
    assert not any(page.error for page in found.pages)
    # On another host, a process has the same number.
    PageFile(tmp_path, 1, 2, pid=child.pid, started_unix_ns=now, host="node2")
    (found,) = jobs.find_jobs(tmp_path)
    assert [page.host for page in found.pages] == ["node1", "node2"]


def test_an_error_that_is_being_written_is_left_out(tmp_path):
    file = PageFile(tmp_path)
    file.fail("half of a", sequence=3)
    assert read_page(file.path).error == ""
    file.fail("half of a sentence", sequence=4)
    assert read_page(file.path).error == "half of a sentence"


def test_the_directory_must_be_private(tmp_path):
    assert jobs.find_jobs(None) == []
    assert jobs.find_jobs(tmp_path / "none") == []
    PageFile(tmp_path / "pages")
    (tmp_path / "pages").chmod(0o755)
    with pytest.raises(ConfigurationError, match="mode 755"):
        jobs.find_jobs(tmp_path / "pages")
    (tmp_path / "pages").chmod(0o700)
    assert len(jobs.find_jobs(tmp_path / "pages")) == 1
    (tmp_path / "link").symlink_to(tmp_path / "pages")
    with pytest.raises(ConfigurationError, match="no directory"):
        jobs.find_jobs(tmp_path / "link")


def test_where_the_pages_are():
    assert directory.status_directory({directory.VARIABLE: "off"}) is None
    assert str(directory.status_directory({directory.VARIABLE: "/x"})) == "/x"
    usual = directory.status_directory({})
    assert str(usual) == f"/tmp/keras-ring-status-{os.geteuid()}"
    # SHA-256 of the label and of a key of zeros.
    assert job_id("00" * 32) == "6d7626371c42"


def test_what_is_beside_pages_is_no_job(tmp_path):
    PageFile(tmp_path)
    (tmp_path / "metrics.token").write_text("x")
    (tmp_path / "0123456789ac").mkdir()
    (tmp_path / JOB / "rank.x.page").write_text("x")
    (tmp_path / JOB / "rank.0.page").write_text("x")
    (tmp_path / JOB / "core").write_text("x")
    (found,) = jobs.find_jobs(tmp_path)
    assert [page.rank for page in found.pages] == [0]


def test_which_job_is_meant(tmp_path, child):
    PageFile(tmp_path, job="aaaaaaaaaaaa", pid=child.pid)
    found = jobs.find_jobs(tmp_path)
    assert jobs.pick(found, None).id == "aaaaaaaaaaaa"
    PageFile(tmp_path, job="aaaaaaaaaaab", pid=dead_pid())
    found = jobs.find_jobs(tmp_path)
    # What was killed has to be named.
    assert jobs.pick(found, None).id == "aaaaaaaaaaaa"
    assert jobs.pick(found, "aaaaaaaaaaab").id == "aaaaaaaaaaab"
    assert jobs.pick(found, str(child.pid)).id == "aaaaaaaaaaaa"
    # This process has started the rank.
    assert jobs.pick(found, str(os.getpid())).id == "aaaaaaaaaaaa"
    with pytest.raises(jobs.SeveralJobsError, match="2 jobs"):
        jobs.pick(found, "aaaa")
    for name in ("b", "1", "zz"):
        with pytest.raises(jobs.NoJobError, match="there are: aaaaaaaaaaab, "):
            jobs.pick(found, name)
    with pytest.raises(jobs.NoJobError, match="how one has ended"):
        jobs.pick(found[1:], None)
    many = [jobs.Job(tmp_path / str(number)) for number in range(12)]
    with pytest.raises(jobs.NoJobError, match=r"it: 11, 10.*, 4 and 4 more$"):
        jobs.pick(many, None)
    with pytest.raises(jobs.NoJobError, match="no job of yours runs"):
        jobs.pick([], None)


def test_dead_jobs_are_cleaned_after_a_day(tmp_path, child):
    old = time.monotonic_ns() - 25 * 3600 * 10**9
    times = {
        "started_ns": old,
        "started_unix_ns": time.time_ns() - 25 * 3600 * 10**9,
    }
    dead = dead_pid()
    PageFile(tmp_path, job="aaaaaaaaaaaa", pid=dead, **times)
    PageFile(tmp_path, job="bbbbbbbbbbbb", pid=dead)
    late = PageFile(tmp_path, job="cccccccccccc", pid=dead, **times)
    late.set(done_ns=time.monotonic_ns())
    times.pop("started_ns")
    alive = PageFile(tmp_path, job="dddddddddddd", pid=child.pid, **times)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    kept = jobs.clean(jobs.find_jobs(tmp_path))
    assert {job.id[0] for job in kept} == {"b", "c", "d"}
    assert {path.name[0] for path in tmp_path.iterdir()} == {"b", "c", "d"}
    assert read_page(alive.path).alive


def test_ancestors(child):
    assert next(process.ancestors(child.pid)) == os.getpid()
    assert list(process.ancestors(dead_pid())) == []
