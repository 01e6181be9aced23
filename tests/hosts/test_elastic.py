"""Jobs on several hosts that go on without ranks and hosts that they lose."""

import json
import os
import re
import signal
import sys
import time

import pytest

from tests.hosts import elastic_chaos
from tests.hosts.elastic_sums import SUMS, Sums, parent_of
from tests.hosts.test_networks import addresses
from tests.multiprocess.elastic.samples import require_each_epoch

pytestmark = pytest.mark.timeout(150, func_only=True)


@pytest.fixture
def sums(lab, jobs, tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(SUMS)

    def start(hosts, *options, **environment):
        command = (sys.executable, str(script), str(tmp_path))
        words = ("--rsh", lab.ssh, *options, "--", *command)
        if hosts:
            words = ("-H", hosts, *words)
        started = jobs.start(lab.keras_ring("run", *words), **environment)
        return Sums(started, tmp_path)

    return start


def test_ranks_of_both_hosts_are_killed_and_replaced(sums, jobs):
    job = sums("kr-h0:2,kr-h1:2", "--max-np", "4")
    first = job.wait_for(4)
    # The first of the one host, and then of the other one.
    for place in (0, 1):
        now = job.wait_for(4)
        killed = time.time()
        os.kill(now[place], signal.SIGKILL)
        job.wait_for(3)
        job.wait_for(4, after=killed)
    last = job.wait_for(4, after=killed)
    out, err = job.end()
    assert job.process.returncode == 0, err
    assert len(set(last) - set(first)) == 2
    assert "lost rank 0; 3 ranks go on" in err
    assert "rank 4 has joined; 4 ranks go on" in err
    assert "rank 5 has joined; 4 ranks go on" in err
    assert len(re.findall("rank . of 4 ended well", out)) == 4
    assert not jobs.wait_until_gone(1)


@pytest.mark.long("hosts")
@pytest.mark.parametrize("tls", ["--tls", "--no-tls"])
def test_goes_on_where_ranks_may_meet(lab, sums, tls):
    """By addresses and ports that are given."""
    options = ("--interface", "fd77::/64", "--port-range", "30000-30003", tls)
    with addresses(lab):
        job = sums("kr-h0:2,kr-h1:2", "--max-np", "4", *options)
        first = job.wait_for(4)
        for place in (0, 2, 1):
            killed = time.time()
            os.kill(job.wait_for(4)[place], signal.SIGKILL)
            job.wait_for(3)
            last = job.wait_for(4, after=killed)
        out, err = job.end()
    assert job.process.returncode == 0, err
    assert len(set(last) - set(first)) >= 2
    assert len(re.findall("rank . of 4 ended well", out)) == 4


def test_goes_on_without_a_lost_host_of_rank_0(lab, sums, jobs):
    # The last of these hosts has no rank at first.
    hosts = "kr-h1:2,kr-h2:2,kr-h0:2"
    job = sums(hosts, "-np", "4", "--max-np", "4")
    first = job.wait_for(4)
    lab("cut", "h1")
    try:
        cut = time.time()
        job.wait_for(2, after=cut + 1)
        went_on = time.time()
        # Killed before the others went on: nothing there writes any more.
        assert not set(first[:2]) & jobs.alive().keys()
        assert job.last_step_of(first[:2]) < cut + 1
        assert went_on - cut < 8
        last = job.wait_for(4, after=went_on)
        assert last[:2] == first[2:]
        out, err = job.end()
    finally:
        lab("heal", "h1")
    assert job.process.returncode == 0, err
    assert "kr-h1 is lost: nothing was heard from it" in err
    assert "lost ranks 0 and 1; 2 ranks go on" in err
    assert len(re.findall("rank . of 4 ended well", out)) == 4


def test_a_signal_to_all_agents_ends_the_job(sums, jobs):
    job = sums("kr-h0:2,kr-h1:2", "--max-np", "4")
    ranks = job.wait_for(4)
    for agent in {parent_of(pid) for pid in ranks}:
        os.kill(agent, signal.SIGTERM)
    _, err = job.process.communicate(timeout=20)
    assert job.process.returncode == 128 + signal.SIGTERM, err
    assert "SIGTERM to its agent ends the job" in err
    assert not jobs.wait_until_gone(5)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_goes_on_without_a_host_whose_agent_ends(sums, jobs, how):
    job = sums("kr-h0:2,kr-h1:2", "--elastic")
    first = job.wait_for(4)
    # The parent of its ranks, which is that of their shims.
    (agent,) = {parent_of(pid) for pid in first[2:]}
    os.kill(agent, how)
    assert job.wait_for(2) == first[:2]
    out, err = job.end()
    assert job.process.returncode == 0, err
    assert len(re.findall("rank . of 2 ended well", out)) == 2
    if how == signal.SIGTERM:
        assert "kr-h1: SIGTERM to its agent: its ranks leave" in err
        assert "ranks 2 and 3 have left; 2 ranks go on" in err
    else:
        assert "kr-h1 is lost: its agent, or ssh to it, has ended" in err
        assert "lost ranks 2 and 3; 2 ranks go on" in err
    assert not jobs.wait_until_gone(5)


def test_a_lost_host_comes_back(lab, sums, jobs):
    options = ("--max-np", "4", "--host-cooldown", "2")
    job = sums("kr-h0:2,kr-h1:2", *options)
    first = job.wait_for(4)
    lab("cut", "h1")
    try:
        job.wait_for(2)
        # It is tried while it is not there.
        time.sleep(3)
    finally:
        lab("heal", "h1")
    last = job.wait_for(4, after=time.time(), seconds=60)
    assert last[:2] == first[:2]
    # Who watches sees the ranks that there are.
    seen = jobs.run(lab.keras_ring("status", "--json", str(last[0])))
    rows = json.loads(seen.stdout)["ranks"]
    assert [(row["rank"], row["pid"]) for row in rows] == [*enumerate(last)]
    assert not set(last) & set(first[2:])
    out, err = job.end()
    assert job.process.returncode == 0, err
    assert "kr-h1 has come; it takes 2 ranks" in err
    assert len(re.findall("rank . of 4 ended well", out)) == 4


def test_hosts_come_and_go(sums, jobs, tmp_path):
    hosts = tmp_path / "hosts"
    tell(hosts, "kr-h0:2\n")
    job = sums(
        "",
        *("--host-discovery-script", f"cat {hosts}"),
        *("--max-np", "5", "--host-cooldown", "1"),
    )
    first = job.wait_for(2)
    # One of them cannot be reached.
    tell(hosts, "kr-h0:2\nkr-h1:2  # new\nno-such-host\n")
    four = job.wait_for(4)
    assert four[:2] == first
    # The host of rank 0 goes, and another one comes.
    tell(hosts, "kr-h1:2\nkr-h2:3\n")
    five = job.wait_for(5, seconds=40)
    assert five[:2] == four[2:]
    assert not set(first) & jobs.alive().keys()
    # No ranks are lost for a script that fails.
    hosts.unlink()
    time.sleep(2.5)
    assert job.wait_for(5, after=time.time()) == five
    out, err = job.end()
    assert job.process.returncode == 0, err
    assert len(re.findall("rank . of 5 ended well", out)) == 5
    assert "kr-h0 is no more among the hosts: its ranks leave" in err
    # In one step, together with those that come in.
    assert re.search(
        "ranks 0 and 1 have left(, .* joined)?; . ranks go on", err
    )
    assert "no-such-host takes no ranks for 1 s: no-such-host cannot be" in err
    assert "--host-discovery-script failed: exit code 1" in err
    assert err.count("--host-discovery-script failed") == 1


def test_ranks_that_do_not_leave_are_killed(sums):
    options = ("--elastic", "--grace-period", "1")
    job = sums("kr-h0:2,kr-h1:2", *options, NEVER_ASKS="1")
    first = job.wait_for(4)
    (agent,) = {parent_of(pid) for pid in first[2:]}
    os.kill(agent, signal.SIGTERM)
    assert job.wait_for(2) == first[:2]
    _, err = job.end()
    assert job.process.returncode == 0, err
    assert "kr-h1: SIGTERM to its agent: its ranks leave" in err
    assert re.search("lost rank(s 2 and 3| 2| 3); . ranks go on", err)


def test_waits_for_hosts_at_the_start(sums, tmp_path):
    hosts = tmp_path / "hosts"
    tell(hosts, "")
    script = ("--host-discovery-script", f"cat {hosts}")
    job = sums("", *script, "-np", "3", "--elastic-timeout", "30")
    assert "there are 0 of 3 slots" in job.process.stderr.readline()
    tell(hosts, "kr-h0:1\nkr-h1:2\n")
    job.wait_for(3)
    _, err = job.end()
    assert job.process.returncode == 0, err
    tell(hosts, "kr-h0:1\n")
    job = sums("", *script, "-np", "3", "--elastic-timeout", "1")
    _, err = job.process.communicate(timeout=10)
    assert job.process.returncode == 2
    assert "its hosts have 1 slots, and 3 are needed; none came in 1 s" in err


@pytest.mark.long("hosts")
def test_ranks_go_on_while_nobody_reads_their_output(sums):
    job = sums(
        "kr-h0:2,kr-h1:2",
        "--elastic",
        NOISE="100000",
        KERAS_RING_START_TIMEOUT="4",
    )
    pids = job.wait_for(4)
    # Until they wait for somebody to read what they print.
    last = 0.0
    while last != (last := job.last_step_of(pids)):
        time.sleep(1)
    os.kill(pids[3], signal.SIGKILL)
    # Longer than ranks that want to go on wait for the launcher.
    time.sleep(6)
    assert job.process.poll() is None
    out, err = job.end()
    assert job.process.returncode == 0, err
    assert "lost rank 3; 3 ranks go on" in err
    assert len(re.findall("rank . of 3 ended well", out)) == 3


def test_ends_with_too_few_ranks(lab, sums, jobs):
    job = sums("kr-h0:2,kr-h1:2", "--min-np", "3")
    job.wait_for(4)
    lab("cut", "h1")
    try:
        _, err = job.process.communicate(timeout=20)
        assert not jobs.wait_until_gone(6)
    finally:
        lab("heal", "h1")
    assert job.process.returncode == 1
    assert (
        "ranks 2 and 3 were lost with their host, and 2 of 4 ranks are left,"
        " fewer than --min-np 3" in err
    )


@pytest.mark.long("hosts")
def test_ends_if_hosts_do_not_reach_each_other_any_more(lab, sums, jobs):
    job = sums(
        "kr-h1:2,kr-h2:2",
        "--elastic",
        KERAS_RING_HEARTBEAT_TIMEOUT="3",
        KERAS_RING_START_TIMEOUT="6",
    )
    job.wait_for(4)
    for host, other in (("h1", "10.77.0.3"), ("h2", "10.77.0.2")):
        lab("exec", host, "--", "ip", "route", "add", "blackhole", other)
    try:
        out, err = job.process.communicate(timeout=60)
    finally:
        for host, other in (("h1", "10.77.0.3"), ("h2", "10.77.0.2")):
            lab("exec", host, "--", "ip", "route", "del", "blackhole", other)
    assert job.process.returncode == 1
    assert "the ranks that are left cannot go on" in err, (out, err)
    assert not jobs.wait_until_gone(5)


@pytest.mark.long("hosts")
def test_each_sample_counts_once(lab, jobs):
    """A plain `fit`, of which rank 0 is lost with its host."""
    program = "-m tests.multiprocess.elastic.plain_fit --epochs 40"
    process = jobs.start(
        lab.run(
            "kr-h1:2,kr-h2:2,kr-h0:2",
            *("-np", "4", "--max-np", "4", "--"),
            *(sys.executable, *program.split()),
        )
    )
    # Until others train.
    lines = []
    while "ran out of data" not in (lines or [""])[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    lab("cut", "h1")
    try:
        out, err = process.communicate(timeout=100)
    finally:
        lab("heal", "h1")
    assert process.returncode == 0, err
    ends = re.findall(r"sizes ([\d,]+), 40 epochs, (\d+) in all, (.*)", out)
    ((sizes, total, counts),) = set(ends)
    assert len(ends) == 4
    assert sizes.startswith("4,2,")
    assert sizes.endswith(",4")
    require_each_epoch(counts.removeprefix("counts "), int(total), 40, 42 * 3)


def tell(path, text):
    """Writes a file that others read meanwhile."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


@pytest.mark.long("hosts")
def test_samples_of_ranks_that_leave(lab, jobs, tmp_path):
    """A plain `fit`: each sample is trained on once, and no step is lost."""
    hosts = tmp_path / "hosts"
    tell(hosts, "kr-h1:2\nkr-h2:2\nkr-h0:2\n")
    program = "-m tests.multiprocess.elastic.plain_fit --epochs 60"
    words = ("--host-discovery-script", f"cat {hosts}", "--rsh", lab.ssh)
    process = jobs.start(
        lab.keras_ring(
            *("run", "-np", "4", "--max-np", "4", *words, "--"),
            *(sys.executable, *program.split()),
        )
    )
    lines = []
    while "ran out of data" not in (lines or [""])[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    tell(hosts, "kr-h2:2\nkr-h0:2\n")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "ranks 0 and 1 have left; 2 ranks go on" in err
    ends = re.findall(r"sizes ([\d,]+), 60 epochs, (\d+) in all, (.*)", out)
    ((sizes, total, counts),) = set(ends)
    assert len(ends) == 4
    assert sizes.startswith("4,2,")
    assert sizes.endswith(",4")
    require_each_epoch(counts.removeprefix("counts "), int(total), 60, 63 * 3)


@pytest.mark.long("hosts")
@pytest.mark.timeout(400, func_only=True)
def test_goes_on_whatever_happens(lab, jobs, tmp_path):
    seed = int(os.environ.get("KERAS_RING_TEST_SEED", time.time()))
    print(f"seed {seed}")
    elastic_chaos.run(lab, jobs, tmp_path, seconds=60, seed=seed)
