"""`keras-ring run` on several hosts: what it shows, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Another file may have the lab for a while.
pytestmark = pytest.mark.timeout(90, func_only=True)


def lab_root():
    return str(Path(__file__).parents[2])


LISTENERS = str(Path(__file__).with_name("rank_listeners.py"))
# A rank that says what it is told, and then waits to be ended.
WAITS = """
import os, pathlib, sys, time
rank = os.environ["KERAS_RING_RANK"]
print("up", flush=True)
pathlib.Path(sys.argv[1], rank).write_text(str(os.getpid()))
time.sleep(120)
"""


@pytest.fixture
def waiting(lab, jobs, tmp_path):
    """Starts a job whose ranks wait, and waits until they do."""

    def start(hosts, *words):
        script = tmp_path / "waits.py"
        script.write_text(WAITS)
        up = tmp_path / "up"
        up.mkdir()
        process = jobs.start(
            lab.run(hosts, *words, "--", sys.executable, str(script), str(up))
        )
        size = sum(int(each.rpartition(":")[2]) for each in hosts.split(","))
        end = time.monotonic() + 40
        while len(list(up.iterdir())) < size:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)
        return process, {
            int(path.name): int(path.read_text()) for path in up.iterdir()
        }

    return start


def test_what_ranks_are_told_and_print(lab, jobs, tmp_path):
    script = tmp_path / "tells.py"
    script.write_text("""
import os, socket, sys
host, port = os.environ["KERAS_RING_RENDEZVOUS"].rsplit(":", 1)
key = os.environ["KERAS_RING_JOB_KEY"]
assert len(bytes.fromhex(key)) == 32
for entry in os.listdir("/proc"):
    if entry.isdigit():
        try:
            words = open(f"/proc/{entry}/cmdline").read()
        except OSError:
            continue
        assert key not in words
fd = os.environ.get("KERAS_RING_RENDEZVOUS_FD")
if fd is not None:
    listener = socket.socket(fileno=int(fd))
    for _ in range(3):
        peer, _ = listener.accept()
        assert peer.recv(10) == b"hello"
else:
    socket.create_connection((host, int(port))).sendall(b"hello")
print(socket.gethostname(), host, os.environ["EXTRA"], os.getcwd())
print("to stderr", file=sys.stderr)
""")
    out = tmp_path / "out"
    done = jobs.run(
        [
            *lab.run("kr-h0:1,kr-h1:2,kr-h2:1", "--env", "EXTRA=a=b"),
            *("--output-dir", str(out), "--threads", "0"),
            *("--", sys.executable, str(script)),
        ]
    )
    assert done.returncode == 0, done.stderr
    hosts = ["kr-h0", "kr-h1", "kr-h1", "kr-h2"]
    said = [f"{host} 10.77.0.1 a=b {os.getcwd()}" for host in hosts]
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {line}" for rank, line in enumerate(said)
    ]
    assert "[0-3] to stderr" in done.stderr
    assert "rank 0 on kr-h0, ranks 1-2 on kr-h1, rank 3 on kr-h2" in done.stderr
    for rank, line in enumerate(said):
        assert (out / f"rank.{rank}/stdout").read_text() == line + "\n"
        assert (out / f"rank.{rank}/stderr").read_text() == "to stderr\n"


def test_lines_of_all_hosts_as_json(lab, jobs, tmp_path):
    script = tmp_path / "counts.py"
    script.write_text("""
import os, sys
from keras_ring.protocol.job_id import job_id
print(*range(5), job_id(os.environ["KERAS_RING_JOB_KEY"]), sep="\\n")
sys.exit(int(os.environ["KERAS_RING_RANK"]))
""")
    out = tmp_path / "out"
    done = jobs.run(
        [
            *lab.run("kr-h0,kr-h1", "--log-format", "json", "--threads", "0"),
            *("--output-dir", str(out), "--output-max-bytes", "1K"),
            *("--", sys.executable, str(script)),
        ]
    )
    assert done.returncode == 1, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    said = [json.loads(line) for line in done.stderr.splitlines()]
    told = {(each["rank"], each["host"]) for each in printed}
    assert told == {(0, "kr-h0"), (1, "kr-h1")}
    (failure,) = [each for each in said if each.get("event") == "failure"]
    assert (failure["rank"], failure["host"]) == (1, "kr-h1")
    assert failure["tail"] == [*"01234", failure["job"]]
    names = [(each["job"], each["trace_id"]) for each in [*printed, *said]]
    assert len(set(names)) == 1
    for rank in range(2):
        files = sorted((out / f"rank.{rank}").glob("stdout*"))
        assert [path.name for path in files] == ["stdout", "stdout.1"]
        assert all(path.stat().st_size <= 1024 for path in files)
        lines = [
            json.loads(line)
            for path in reversed(files)
            for line in path.read_text().splitlines()
        ]
        assert lines == [each for each in printed if each["rank"] == rank]


def test_first_failure_ends_all(lab, jobs, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("# of the lab\nkr-h0 slots=1\nkr-h1:1  # MPICH's way\n")
    done = jobs.run(
        lab.keras_ring(
            *("run", "--hostfile", str(hosts), "--rsh", lab.ssh, "--"),
            *("sh", "-c", "[ $KERAS_RING_RANK = 0 ] && sleep 60; exit 7"),
        )
    )
    assert done.returncode == 7, done.stderr
    assert re.search(
        r"rank 1 \(host kr-h1, pid \d+\) exited with code 7", done.stderr
    )
    assert "rank 0 was then ended by keras-ring" in done.stderr


@pytest.mark.parametrize(
    ("hosts", "command", "told"),
    [
        ("kr-h0,kr-h9", ["true"], r"kr-h9 cannot be reached .*; try: ssh -F"),
        ("kr-h0,kr-h1", ["nonesuch"], r"kr-h1: program not found: 'nonesuch'"),
        (
            "kr-h0,kr-h1",
            ["python", "none.py"],
            r"kr-h1: script not found: 'none.py'",
        ),
    ],
)
def test_what_a_host_lacks_is_said_before_the_start(
    lab, jobs, hosts, command, told
):
    done = jobs.run(lab.run(hosts, "--", *command))
    assert done.returncode == 1
    assert re.search(told, done.stderr), done.stderr


def test_directory_that_a_host_lacks(lab, jobs, tmp_path):
    # The agents' own view: that of the launcher is gone by then.
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = tmp_path / "rsh"
    shell.write_text(
        f'#!/bin/sh\nrmdir {gone} 2>/dev/null\nexec {lab.ssh} "$@"'
    )
    shell.chmod(0o755)
    words = lab.keras_ring(
        *("run", "-H", "kr-h1,kr-h2", "--rsh", str(shell), "--", "true")
    )
    done = jobs.run(["sh", "-c", f'cd {gone} && exec "$@"', "sh", *words])
    assert done.returncode == 1
    assert f"kr-h1: the working directory {gone}: No such file" in done.stderr


def test_interpreter_that_a_host_lacks(lab, jobs, tmp_path):
    shell = tmp_path / "rsh"
    shell.write_text(
        "#!/bin/sh\n"
        f'host=$1; shift; exec {lab.ssh} "$host" '
        '"$(echo "$*" | sed s,exec.[^\\ ]*,exec\\ /nowhere/python,)"'
    )
    shell.chmod(0o755)
    done = jobs.run(
        lab.keras_ring(
            *("run", "-H", "kr-h0,kr-h1", "--rsh", str(shell), "--", "true")
        )
    )
    assert done.returncode == 1
    assert f"kr-h1 cannot run {sys.executable}" in done.stderr
    assert "/nowhere/python" in done.stderr


@pytest.mark.parametrize("at", [4094, 4096, 4100])
def test_first_message_of_any_length(lab, jobs, at):
    """What follows it is not swallowed with it."""
    done = jobs.run(
        lab.on(
            "h0",
            *("env", "-i", f"PATH={os.environ['PATH']}", f"PAD={'x' * at}"),
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}:{lab_root()}",
            *(sys.executable, "-m", "keras_ring", "run", "-H", "kr-h0,kr-h1"),
            *("--rsh", lab.ssh, "--", "true"),
        )
    )
    assert done.returncode == 0, done.stderr


def test_cores_that_a_host_lacks_are_said_before_the_start(lab, jobs, tmp_path):
    done = jobs.run(
        lab.run(
            "kr-h0:1,kr-h1:99", "--bind", "--", "touch", str(tmp_path / "x")
        )
    )
    assert done.returncode == 1
    assert "kr-h1: --bind: 99 ranks cannot have processors" in done.stderr
    assert not (tmp_path / "x").exists()


def test_ctrl_c_before_the_start_is_no_success(lab, jobs, tmp_path):
    shell = tmp_path / "rsh"
    shell.write_text("#!/bin/sh\nsleep 30\n")
    shell.chmod(0o755)
    process = jobs.start(
        lab.keras_ring(
            *("run", "-H", "kr-h0,kr-h1", "--rsh", str(shell), "--", "true")
        )
    )
    assert "on kr-h1" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_program_in_place_of_ssh_that_is_not_there(lab, jobs):
    for words in (["run", "-H", "kr-h1"], ["check", "-H", "kr-h1"]):
        done = jobs.run(
            lab.keras_ring(*words, "--rsh", "nosuch")
            if words[0] == "check"
            else lab.keras_ring(*words, "--rsh", "nosuch", "--", "true")
        )
        assert done.returncode == 1
        assert "nosuch: No such file" in done.stderr
        assert "Traceback" not in done.stderr


def test_launcher_that_stands_still_for_a_while(lab, jobs, tmp_path):
    """The disk of --output-dir, or a terminal: the agents do not give up."""
    out = tmp_path / "out"
    (out / "rank.0").mkdir(parents=True)
    os.mkfifo(out / "rank.0" / "stdout")
    process = jobs.start(
        lab.run(
            *("kr-h0,kr-h1", "--output-dir", str(out), "--"),
            *("sh", "-c", "echo up; sleep 7; echo end"),
        )
    )
    # Nobody reads: to open it for writing takes as long as this.
    time.sleep(8)
    with (out / "rank.0" / "stdout").open() as file:
        assert file.read() == "up\nend\n"
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err


def test_interfaces_and_ports(lab, jobs):
    done = jobs.run(
        lab.run(
            "kr-h0,kr-h1",
            *("--interface", "10.77.0.0/16", "--port-range", "30500-30509"),
            *("--", "sh", "-c", "echo $KERAS_RING_RENDEZVOUS"),
        )
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[1\] 10\.77\.0\.1:3050\d\n", done.stdout)
    done = jobs.run(
        lab.run(
            *("kr-h0:2,kr-h1:2", "--port-range", "30500-30503"),
            *("--", sys.executable, LISTENERS),
        )
    )
    assert done.returncode == 0, done.stderr
    ports = [int(port) for port in re.findall(r"listens on (\d+)", done.stdout)]
    assert len(ports) == 4 and set(ports) <= set(range(30500, 30504))
    done = jobs.run(lab.run("kr-h0,kr-h1", "--interface", "ib0", "--", "true"))
    assert done.returncode == 1
    assert "--interface ib0: kr-h0 has none such; it has eth0" in done.stderr


def test_hosts_that_do_not_reach_each_other(lab, jobs):
    addresses = {"h0": "10.99.0.1/32", "h1": "10.98.0.2/32"}

    def change(verb):
        for host, address in addresses.items():
            words = ("ip", "addr", verb, address, "dev", "eth0")
            subprocess.run(lab.on(host, *words), check=True)

    change("add")
    try:
        done = jobs.run(
            lab.run(
                *("kr-h0,kr-h1", "--interface", "10.99.0.0/16,10.98.0.0/16"),
                *("--", "true"),
            )
        )
    finally:
        change("del")
    assert done.returncode == 1
    assert "kr-h1 cannot reach kr-h0 at 10.99.0.1, port" in done.stderr


@pytest.mark.parametrize("victim", ["launcher", "ssh", "agent"])
def test_whoever_is_killed_nothing_is_left(waiting, jobs, victim):
    process, _ = waiting("kr-h0:1,kr-h1:2")
    words = {
        "launcher": "keras_ring\0run",
        "ssh": "ssh\0-F",
        "agent": "-u\0-c\0import sys",
    }[victim]
    victims = [
        pid
        for pid, command in jobs.alive().items()
        if words in command and (victim == "ssh" or "ssh\0" not in command)
    ]
    assert victims
    # Of several agents, one.
    os.kill(victims[-1], signal.SIGKILL)
    began = time.monotonic()
    left = jobs.wait_until_gone(5.0)
    assert not left, left
    assert time.monotonic() - began < 5
    _, err = process.communicate(timeout=10)
    if victim != "launcher":
        assert process.returncode == 1, err
        assert re.search(
            r"\(host kr-h\d, pid \d+\) was lost with its host: its agent", err
        ), err


def test_cut_host_ends_the_job(lab, waiting, jobs):
    process, pids = waiting("kr-h0:1,kr-h1:1,kr-h2:1")
    assert set(pids.values()) <= jobs.alive().keys()
    began = time.monotonic()
    lab("cut", "h1")
    try:
        _, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 5.5, err
        assert process.returncode == 1
        assert "rank 1 (host kr-h1" in err
        assert "nothing was heard from it for 3.5 s" in err
        # The host cannot be told; it finds out by itself.
        assert not jobs.wait_until_gone(began + 6 - time.monotonic())
    finally:
        lab("heal", "h1")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_all(waiting, jobs, signum):
    process, _ = waiting("kr-h0:1,kr-h1:1")
    process.send_signal(signum)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signum, err
    assert f"ended by {signum.name}" in err


def test_second_ctrl_c_waits_for_nobody(lab, jobs, tmp_path):
    script = tmp_path / "ignores.py"
    script.write_text("""
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
""")
    process = jobs.start(
        lab.run("kr-h0:1,kr-h1:1", "--", sys.executable, str(script))
    )
    for _ in range(2):
        assert "up" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - began < 3


def test_reader_that_goes(lab, jobs):
    process = jobs.start(lab.run("kr-h0,kr-h1", "--", "yes"))
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 128 + signal.SIGPIPE
