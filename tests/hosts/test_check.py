"""`keras-ring check -H`."""

import json
import subprocess
import sys

import pytest

# Another file may have the lab for a while.
pytestmark = pytest.mark.timeout(90, func_only=True)


def test_hosts_that_fit_together(lab, jobs):
    done = jobs.run(
        lab.keras_ring(
            *("check", "-H", "kr-h0,kr-h1,kr-h2", "--rsh", lab.ssh, "--json")
        )
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ready"]
    assert list(report["facts"]) == ["kr-h0", "kr-h1", "kr-h2"]
    for number, facts in enumerate(report["facts"].values()):
        assert ["eth0", f"10.77.0.{number + 1}"] in facts["addresses"]
        assert abs(facts["clock"]) < 0.5
    links = {(link["from"], link["to"]): link for link in report["links"]}
    assert len(links) == 6
    for (_, to), link in links.items():
        assert link["address"] == f"10.77.0.{int(to[-1]) + 1}"
        assert link["microseconds"] < 50_000
        assert link["megabytes"] > 1


def test_ports_that_are_taken(lab, jobs):
    """Of four ports one is free, and the host is to take two ranks."""
    script = (
        "import socket, sys; "
        "held = [socket.create_server(('', p)) for p in (30601, 30602, 30603)];"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = jobs.start(
        lab.on("h1", sys.executable, "-c", script), with_input=True
    )
    assert holder.stdout.readline() == "held\n"
    words = ("--rsh", lab.ssh, "--port-range", "30600-30603")
    done = jobs.run(lab.keras_ring("check", "-H", "kr-h0:2,kr-h1:2", *words))
    assert done.returncode == 1
    told = "kr-h1: 1 of the ports of --port-range is free, and its ranks listen"
    assert f"{told} on 2" in done.stderr
    (row,) = [x for x in done.stdout.splitlines() if x.startswith("free_ports")]
    assert row.split() == ["free_ports", "4", "1"]
    started = jobs.run(
        lab.keras_ring("run", "-H", "kr-h0:2,kr-h1:2", *words, "--", "true")
    )
    assert started.returncode == 1
    assert told in started.stderr
    holder.stdin.close()
    holder.wait(10)


def test_slow_link_is_seen(lab, jobs):
    lab("slow", "h1", "--rate", "80mbit")
    try:
        done = jobs.run(
            lab.keras_ring(
                *("check", "-H", "kr-h0,kr-h1", "--rsh", lab.ssh, "--json")
            )
        )
    finally:
        lab("heal", "h1")
    rates = [link["megabytes"] for link in json.loads(done.stdout)["links"]]
    assert len(rates) == 2
    assert all(3 < rate < 14 for rate in rates), rates


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_what_differs_is_marked(lab, jobs, tmp_path, framework):
    # An agent that says it has another version, or has it alone.
    shell = tmp_path / "rsh"
    shell.write_text(
        "#!/bin/sh\n"
        f"host=$1; shift; [ $host = kr-h1 ] && exec {lab.ssh} $host "
        '"$(echo "$*" | sed \'s,; main(hello),;'
        " from keras_ring.launch import host_facts as f; g = f.gather;"
        f' f.gather = lambda *_: {{**g()\\, "{framework}": "1.0"}};'
        " main(hello),')\""
        f'\nexec {lab.ssh} $host "$@"'
    )
    shell.chmod(0o755)
    words = ("-H", "kr-h0,kr-h1", "--rsh", str(shell))
    done = jobs.run(lab.keras_ring("check", *words))
    assert done.returncode == 1, done.stdout
    (row,) = [
        line for line in done.stdout.splitlines() if line.startswith(framework)
    ]
    assert "1.0" in row
    assert framework == "tensorflow" or "missing" in row
    assert "<- differs" in row
    assert f"the hosts differ in {framework}: " in done.stderr
    assert "1.0 on kr-h1" in done.stderr
    started = jobs.run(lab.keras_ring("run", *words, "--", "true"))
    assert started.returncode == 1
    assert f"the hosts differ in {framework}: " in started.stderr


def test_host_that_is_not_reached(lab, jobs):
    done = jobs.run(
        lab.keras_ring(*("check", "-H", "kr-h0,kr-h9", "--rsh", lab.ssh))
    )
    assert done.returncode == 1
    assert "kr-h9 cannot be reached" in done.stderr
    assert done.stdout.endswith("a job cannot run on these hosts\n")


def test_one_way_is_blocked(lab, jobs):
    route = ("blackhole", "10.77.0.3/32")
    subprocess.run(lab.on("h1", "ip", "route", "add", *route), check=True)
    try:
        done = jobs.run(
            lab.keras_ring(
                *("check", "-H", "kr-h0,kr-h1,kr-h2", "--rsh", lab.ssh)
            )
        )
    finally:
        subprocess.run(lab.on("h1", "ip", "route", "del", *route), check=True)
    assert done.returncode == 1
    assert "kr-h1 does not reach kr-h2: 10.77.0.3: " in done.stderr
    assert "kr-h0 -> kr-h2: round trip" in done.stdout
