import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import keras_ring
from tests.launcher.command import Command, wait_for_files

pytestmark = pytest.mark.timeout(60)

PRELUDE = """
import os, signal, socket, stat, subprocess, sys, time
from pathlib import Path
rank = int(os.environ["KERAS_RING_RANK"])
here = Path(sys.argv[1])
"""


@pytest.fixture
def start(tmp_path):
    """Starts a script on several ranks; afterwards nothing may be left."""
    commands = []

    def start_script(num_ranks, text, *options, **environment):
        script = tmp_path / "rank.py"
        script.write_text(PRELUDE + text)
        here = tmp_path / "here"
        here.mkdir(exist_ok=True)
        words = ("run", "-np", str(num_ranks), *options, "--")
        rank = (sys.executable, str(script), str(here))
        commands.append(Command(*words, *rank, **environment))
        return commands[-1]

    yield start_script
    for command in commands:
        assert command.wait_until_gone(5.0) == set()


@pytest.mark.quick
def test_what_a_rank_is_told(start):
    done = start(
        2,
        """
fd = os.environ.get("KERAS_RING_RENDEZVOUS_FD")
host, port = os.environ["KERAS_RING_RENDEZVOUS"].split(":")
key = os.environ["KERAS_RING_JOB_KEY"]
assert len(bytes.fromhex(key)) == 32
assert key not in Path("/proc/self/cmdline").read_text()
assert key not in Path(f"/proc/{os.getppid()}/cmdline").read_text()
folder = Path(os.environ["KERAS_RING_ERROR_FILE"]).parent
assert stat.S_IMODE(folder.stat().st_mode) == 0o700
if rank == 0:
    listener = socket.socket(fileno=int(fd))
    assert listener.getsockname() == ("127.0.0.1", int(port))
    peer, _ = listener.accept()
    assert peer.recv(10) == b"hello"
else:
    assert fd is None
    socket.create_connection((host, int(port))).sendall(b"hello")
assert sys.stdin.read() == ""
leads = os.getsid(0) == os.getpid()
print(os.environ["KERAS_RING_SIZE"], os.environ["EXTRA"], leads)
from keras_ring.protocol import error_file
if rank == 1: error_file.mark_started()
""",
        "--env",
        "EXTRA=a=b",
        "--threads",
        "0",
    ).wait()
    assert (done.returncode, done.stderr) == (0, "")
    lines = sorted(done.stdout.splitlines())
    assert lines == ["[0] 2 a=b True", "[1] 2 a=b True"]


def test_output_of_all_sorts(start, tmp_path):
    done = start(
        2,
        r"""
sys.stdout.buffer.write(b"\xff\n10%\r20%\r\nlast without end")
sys.stderr.write("on stderr\n")
sys.stdout.flush()
""",
        "--no-fold",
        "--output-dir",
        str(tmp_path / "out"),
    ).wait()
    assert done.returncode == 0
    for rank in (0, 1):
        mine = [
            line
            for line in done.stdout.splitlines()
            if line.startswith(f"[{rank}]")
        ]
        assert mine == [
            f"[{rank}] \\xff",
            f"[{rank}] 20%",
            f"[{rank}] last without end",
        ]
        assert f"[{rank}] on stderr" in done.stderr.splitlines()
        folder = tmp_path / "out" / f"rank.{rank}"
        raw = b"\xff\n10%\r20%\r\nlast without end"
        assert (folder / "stdout").read_bytes() == raw
        assert (folder / "stderr").read_bytes() == b"on stderr\n"


def _own_lines(done):
    return [
        line.removeprefix("keras-ring: ")
        for line in done.stderr.splitlines()
        if line.startswith("keras-ring: ")
    ]


def test_an_exception_of_all_ranks_is_shown_once(start):
    done = start(
        3,
        """
from keras_ring.protocol import error_file
error_file.install()
(here / str(rank)).touch()
while len(list(here.iterdir())) < 3: time.sleep(0.01)
raise ValueError("of all")
""",
        "--threads",
        "1",
    ).wait()
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "[0-2] ValueError: of all" in done.stderr.splitlines()
    assert _own_lines(done)[0] == "ranks 0-2 raised ValueError: of all"
    assert len(_own_lines(done)) == 3


def test_lines_stay_apart_where_asked_for(start):
    done = start(
        2, "print('alike', file=sys.stderr)", "--no-fold", "--threads", "0"
    ).wait()
    lines = done.stderr.splitlines()
    assert sorted(lines[:2]) == ["[0] alike", "[1] alike"]


def test_lines_of_tensorflow_that_nobody_wants(start):
    header = "I0000 00:00:1795354298.905467   19947 port.cc:153]"
    text = f"print('{header} oneDNN', file=sys.stderr)"
    options = ("--threads", "0")
    for level, shown in (("", False), ("2", False), ("0", True)):
        environment = {"TF_CPP_MIN_LOG_LEVEL": level}
        done = start(1, text, *options, **environment).wait()
        assert ("oneDNN" in done.stderr) == shown, level


def test_a_program_that_takes_no_part_in_the_job(start):
    done = start(2, "", "--threads", "0").wait()
    assert (done.returncode, done.stdout) == (0, "")
    assert _own_lines(done) == [
        "no rank has called keras_ring.init(): these were 2 programs, each on"
        " its own"
    ]
    assert start(1, "").wait().stderr == ""


THREADS = """
print(*(os.environ.get(f"{name}_THREADS") for name in (
    "TF_NUM_INTRAOP", "OMP_NUM")), sorted(os.sched_getaffinity(0)))
"""


def test_cores_are_shared(start):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one processor cannot be shared out")
    environment = {"TF_NUM_INTRAOP_THREADS": "", "OMP_NUM_THREADS": "7"}
    done = start(2, THREADS, "--bind", **environment).wait()
    words = [line.split(" ", 3) for line in sorted(done.stdout.splitlines())]
    assert {tuple(each[2:3]) for each in words} == {("7",)}
    bound = [json.loads(each[3]) for each in words]
    assert sorted(bound[0] + bound[1]) == cpus
    assert int(words[0][1]) >= 1
    (note, *_) = _own_lines(done)
    assert f"for 2 ranks: set TF_NUM_INTRAOP_THREADS={words[0][1]}" in note
    assert "OMP" not in note


def test_much_output_at_once_keeps_its_lines(start):
    done = start(3, "for i in range(20000): print(rank, i, 'x' * 30)").wait()
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 60000
    assert all(line[1] == line[4] and line.endswith("x" * 30) for line in lines)


def test_a_reader_that_does_not_read_does_not_stop_the_launcher(
    start, tmp_path
):
    """Nobody reads our pipe, yet a failure ends the other ranks in time."""
    command = start(
        2,
        """
(here / f"pid{rank}").write_text("")
if rank == 1:
    time.sleep(1)
    sys.exit(7)
while True:
    print("x" * 1000)
""",
    )
    end = time.monotonic() + 15
    wait_for_files(tmp_path / "here", {"pid0", "pid1"})
    ranks = 1
    while ranks > 0 and time.monotonic() < end:
        time.sleep(0.1)
        # What is left then is the launcher and its watchdog.
        ranks = len(command.alive()) - 2
    assert ranks == 0
    # It still has output to write, but has not taken all that came.
    status = Path(f"/proc/{command.process.pid}/status").read_text()
    peak = next(
        int(line.split()[1])
        for line in status.splitlines()
        if line.startswith("VmHWM")
    )
    assert peak < 64 * 1024
    assert command.wait().returncode == 7


def test_pipes_of_a_rank_end_as_in_a_shell():
    """Python ignores SIGPIPE; the ranks must not inherit that."""
    shell = "grep SigIgn /proc/self/status"
    done = Command("run", "-np", "1", "--", "bash", "-c", shell).wait()
    ignored = int(done.stdout.split()[-1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_output_comes_while_the_rank_runs(start):
    command = start(1, "print('now'); time.sleep(30)")
    assert select.select([command.process.stdout], [], [], 10.0)[0]
    assert command.process.stdout.readline() == b"[0] now\n"
    command.process.send_signal(signal.SIGTERM)
    assert command.wait().returncode == 128 + signal.SIGTERM


def test_a_reader_that_goes_away_ends_the_job(start):
    command = start(1, "while True: print('line')")
    command.process.stdout.readline()
    command.process.stdout.close()
    command.process.wait(timeout=20)
    assert command.process.returncode == 128 + signal.SIGPIPE


def test_a_rank_may_end_before_the_others(start):
    done = start(2, "time.sleep(rank); print('end')").wait()
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["[0] end", "[1] end"]


@pytest.mark.quick
def test_the_killed_rank_is_named_with_its_last_words(start):
    started = time.monotonic()
    done = start(
        3,
        """
if rank == 2:
    print("last words")
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(30)
""",
    ).wait()
    assert time.monotonic() - started < 6.5
    assert done.returncode == 137
    first = _own_lines(done)[1]
    assert first.startswith("rank 2 (pid ")
    assert "was killed by SIGKILL" in first
    assert "keras-ring:   | last words" in done.stderr


def test_lost_peers_that_leave_first_are_not_named(start):
    done = start(
        3,
        """
from keras_ring.protocol import error_file
error_file.install()
class UnavailableError(Exception): pass
if rank == 1:
    import atexit
    atexit.register(time.sleep, 0.8)
    (here / "failing").write_text("")
    raise ValueError("the cause")
while not (here / "failing").exists():
    time.sleep(0.01)
raise UnavailableError("rank 1 was lost")
""",
    ).wait()
    assert done.returncode == 1
    _, cause, first, others = _own_lines(done)
    assert cause == "rank 1 raised ValueError: the cause"
    assert first.startswith("rank 1 (pid ")
    assert others == "ranks 0, 2 exited with code 1, having lost rank 1"
    # One traceback, and a line for what the others saw: for both at once, if
    # they came to it at the same time.
    assert done.stderr.count("Traceback") == 1
    seen = re.findall(
        r"^\[(.*)\] UnavailableError: rank 1 was lost \(", done.stderr, re.M
    )
    assert ", ".join(sorted(seen)) == "0, 2", done.stderr


@pytest.mark.parametrize("elsewhere", [False, True])
def test_who_is_killed_is_named_though_it_is_slow_to_vanish(
    start, shell_here, elsewhere
):
    """As one whose memory the kernel frees for longer than others may stay.

    What is seen of it is that its first thread has ended.
    """
    where = ("-H", "host-a:1,host-b:2", "--rsh", shell_here())
    done = start(
        3,
        """
from keras_ring.protocol import error_file
error_file.install()
class UnavailableError(Exception): pass
if rank == 1:
    import ctypes, platform, threading
    def vanish():
        while not (here / "ending").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=vanish).start()
    (here / "dying").write_text("")
    exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    ctypes.CDLL(None).syscall(exit_thread, 0)
if rank == 2:
    def end(signum, frame):
        (here / "ending").write_text("")
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    time.sleep(30)
while not (here / "dying").exists():
    time.sleep(0.01)
raise UnavailableError("rank 1 was lost")
""",
        *(where if elsewhere else ()),
    ).wait()
    assert done.returncode == 137
    lines = _own_lines(done)
    place = "host host-b, " if elsewhere else ""
    (killed,) = (line for line in lines if "was killed by SIGKILL" in line)
    assert killed.startswith(f"rank 1 ({place}pid "), lines
    assert "rank 0 exited with code 1, having lost rank 1" in lines


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_forwarded_once(start, tmp_path, signum):
    command = start(
        2,
        f"""
def leave(signum, frame):
    print("got", signal.Signals(signum).name)
    sys.exit(0)
signal.signal({int(signum)}, leave)
(here / str(rank)).write_text("")
time.sleep(30)
""",
    )
    wait_for_files(tmp_path / "here", {"0", "1"})
    command.process.send_signal(signum)
    done = command.wait()
    assert done.returncode == 0
    name = signal.Signals(signum).name
    assert sorted(done.stdout.splitlines()) == [
        f"[0] got {name}",
        f"[1] got {name}",
    ]


def test_two_signals_end_ranks_that_ignore_them(start, tmp_path):
    command = start(
        2,
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(here / str(rank)).write_text("")
time.sleep(30)
""",
    )
    wait_for_files(tmp_path / "here", {"0", "1"})
    command.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.wait(timeout=0.5)
    started = time.monotonic()
    command.process.send_signal(signal.SIGTERM)
    done = command.wait()
    assert time.monotonic() - started < 3
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_a_request_for_a_report_kills_nobody(start, tmp_path, name):
    command = start(
        2,
        f"asked = signal.{name}"
        + """
if rank == 0:
    def report(*_):
        print("report")
        (here / "reported").write_text("")
    signal.signal(asked, report)
(here / str(rank)).write_text("")
while not (here / "reported").exists():
    time.sleep(0.02)
""",
    )
    wait_for_files(tmp_path / "here", {"0", "1"})
    command.process.send_signal(signal.Signals[name])
    done = command.wait()
    assert (done.returncode, done.stdout) == (0, "[0] report\n")


ORPHANS = """
# A rank that ignores SIGTERM, with a child of its own, one in another process
# group, and one in another session.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = ["sleep", "60"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, preexec_fn=os.setpgrp)
subprocess.Popen(sleep, start_new_session=True)
# Without our variables it can only be found by its session.
subprocess.Popen(sleep, env={k: v for k, v in os.environ.items()
                             if k != "KERAS_RING_ERROR_FILE"})
(here / str(rank)).write_text(os.environ["KERAS_RING_ERROR_FILE"])
"""


def test_no_orphan_when_the_launcher_is_killed(start, tmp_path):
    command = start(2, ORPHANS + "time.sleep(60)")
    wait_for_files(tmp_path / "here", {"0", "1"})
    assert len(command.alive()) >= 11
    command.process.kill()
    assert command.wait_until_gone(4.0) == set()
    folder = Path((tmp_path / "here" / "0").read_text()).parent
    end = time.monotonic() + 4
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not folder.exists()


def test_no_orphan_behind_a_shell_when_the_launcher_is_killed(tmp_path):
    # "; true" keeps the shell in between.
    shell = f"echo > {tmp_path}/$KERAS_RING_RANK; sleep 60; true"
    command = Command("run", "-np", "2", "--", "bash", "-c", shell)
    wait_for_files(tmp_path, {"0", "1"})
    command.process.kill()
    assert command.wait_until_gone(4.0) == set()


def test_ranks_die_with_the_launcher_even_without_the_watchdog(tmp_path):
    shell = f"echo > {tmp_path}/$KERAS_RING_RANK; exec sleep 60"
    words = ("run", "-np", "2", "--", "bash", "-c", shell)
    # Nobody is left to remove the job's directory.
    command = Command(*words, TMPDIR=str(tmp_path))
    wait_for_files(tmp_path, {"0", "1"})
    watchdogs = [
        pid
        for pid in command.alive()
        if b"job_processes" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(watchdogs) == 1
    os.kill(watchdogs[0], signal.SIGKILL)
    command.process.kill()
    assert command.wait_until_gone(4.0) == set()


def test_what_ranks_leave_running_is_ended(start):
    done = start(1, ORPHANS).wait()
    assert done.returncode == 0
    assert "ended 4 process(es) that the ranks had left" in done.stderr


def test_no_orphan_of_a_failed_job(start):
    done = start(2, ORPHANS + "time.sleep(0.2 if rank else 60); sys.exit(3)")
    assert done.wait().returncode == 3


def test_rank_0s_port_is_refused_once_it_is_dead(start, tmp_path):
    command = start(
        2,
        """
if rank == 0:
    sys.exit(0)
host, port = os.environ["KERAS_RING_RENDEZVOUS"].split(":")
end = time.monotonic() + 10
while time.monotonic() < end:
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        sys.exit(0)
    time.sleep(0.02)
sys.exit(9)
""",
    )
    assert command.wait().returncode == 0


def test_an_idle_launcher_sleeps(start, tmp_path):
    command = start(2, "(here / str(rank)).write_text(''); time.sleep(30)")
    wait_for_files(tmp_path / "here", {"0", "1"})

    def ticks():
        stat_text = Path(f"/proc/{command.process.pid}/stat").read_text()
        return sum(map(int, stat_text.rpartition(")")[2].split()[11:13]))

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 1
    command.process.send_signal(signal.SIGINT)
    command.wait()


def test_old_kernels_without_pidfd(start, monkeypatch, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os\ndef refuse(*_): raise OSError(38, 'no pidfd')\n"
        "os.pidfd_open = refuse\n"
    )
    done = start(
        2, "sys.exit(rank * 5)", PYTHONPATH=str(tmp_path / "site")
    ).wait()
    assert done.returncode == 5


def test_the_version():
    done = Command("--version").wait()
    assert done.stdout == f"keras-ring {keras_ring.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-np", "0", "--", "true"],
        ["run", "-np", "2", "--threads", "-1", "--", "true"],
        ["run", "-np", "4000", "--bind", "--", "true"],
        ["check", "-np", "0"],
        ["run", "-np", "x", "--", "true"],
        ["run", "-np", "2"],
        ["run", "--", "true"],
        ["run", "-np", "2", "--", "python3", "nope.py"],
        ["run", "-np", "2", "--", "no-such-program"],
        ["run", "-np", "2", "--env", "K", "--", "true"],
        ["run", "-np", "2", "-H", "-oProxyCommand=x:2", "--", "true"],
        ["run", "-np", "2", "--hostfile", "/nowhere", "--", "true"],
        ["run", "-np", "5", "-H", "elsewhere:4", "--", "true"],
        ["run", "-np", "2", "--start-timeout", "soon", "--", "true"],
        ["run", "-np", "2", "--output-dir", "/dev/null/x", "--", "true"],
        ["run", "-np", "2", "--bogus"],
        ["walk"],
        [],
    ],
)
def test_bad_input_is_one_line_and_2(words):
    done = Command(*words).wait()
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("keras-ring: error: ")
    assert done.stderr.count("\n") == 1


def test_a_malformed_variable_is_one_line_and_2():
    done = Command(
        "run", "-np", "2", "--", "true", KERAS_RING_FUSION_THRESHOLD="64MiB"
    ).wait()
    assert done.returncode == 2
    assert "KERAS_RING_FUSION_THRESHOLD is '64MiB'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_imports_neither_tensorflow_nor_keras():
    code = (
        "import sys, keras_ring.launch.cli.cli\n"
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
