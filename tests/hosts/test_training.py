"""Training on several hosts, and functions."""

import re
import sys

import pytest

from tests.documented import blocks
from tests.lab.lab import ROOT

# Another file may have the lab for a while.
pytestmark = pytest.mark.timeout(150, func_only=True)
DIGITS = str(ROOT / "examples" / "keras_digits.py")
SUMS = str(ROOT / "tests" / "hosts" / "rank_sums.py")


def _checksums(text):
    return re.findall(r"weights sha256 (\S+)", text)


def test_uneven_hosts_have_their_places(lab, jobs):
    helper = ("--env", "KERAS_RING_HELPER_THREAD=1")
    done = jobs.run(
        lab.run("kr-h0:1,kr-h1:2", *helper, "--", sys.executable, SUMS),
        limit=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] kr-h0 sum=3.0 local=0/1 cross=0/2",
        "[1] kr-h1 sum=3.0 local=0/2 cross=1/2",
        "[2] kr-h1 sum=3.0 local=1/2 cross=0/1",
    ]


def test_training_is_that_of_one_host(lab, jobs):
    # With as many threads: theirs is another order of sums.
    command = ("--threads", "1", "--", sys.executable, DIGITS)
    on_hosts = jobs.run(lab.run("kr-h0:1,kr-h1:1", *command), limit=120)
    assert on_hosts.returncode == 0, on_hosts.stderr
    here = jobs.run(lab.keras_ring("run", "-np", "2", *command), limit=120)
    assert here.returncode == 0, here.stderr
    sums = _checksums(on_hosts.stdout)
    assert len(sums) == 2
    assert len(set(sums)) == 1
    assert set(sums) == set(_checksums(here.stdout))


FUNCTION = """
import os, sys
import keras_ring as kr

def where(extra):
    import socket
    if extra == "fail" and os.environ["KERAS_RING_RANK"] == "1":
        raise KeyError("of rank 1")
    return socket.gethostname(), os.environ["KERAS_RING_RANK"], extra

if __name__ == "__main__":
    try:
        print(kr.run(where, (sys.argv[2],), np=None, hosts="kr-h0:1,kr-h1:2",
                     rsh=sys.argv[1]))
    except kr.errors.KerasRingError as error:
        print(type(error).__name__, error)
"""


def test_function_on_hosts(lab, jobs, tmp_path):
    script = tmp_path / "calls.py"
    script.write_text(FUNCTION)
    command = lab.on("h0", sys.executable, str(script), lab.ssh)
    done = jobs.run([*command, "x"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(
        [("kr-h0", "0", "x"), ("kr-h1", "1", "x"), ("kr-h1", "2", "x")]
    )
    failed = jobs.run([*command, "fail"])
    assert "RankFailedError rank 1 raised KeyError" in failed.stdout
    assert "host kr-h1" in failed.stdout


SSH = ROOT / "docs" / "engines" / "ssh.md"


def _commands():
    text = SSH.read_text() + (ROOT / "docs" / "launching.md").read_text()
    commands = [
        block.replace("\\\n", "").strip() for block in blocks(text, "sh")
    ]
    # tests/engines has the others, tests/launcher those of this host.
    named = re.compile(r"keras-ring (run|check) .*(-H|--hostfile) ")
    commands = [each for each in commands if named.match(each)]
    assert len(commands) > 3
    return commands


@pytest.mark.parametrize("command", _commands())
def test_commands_of_the_page(lab, jobs, tmp_path, command):
    """Each of them runs as it is, with our hosts for the page's."""
    trains = command == "keras-ring run -H node1:2,node2:2 -- python train.py"
    (program,) = blocks(SSH.read_text(), "python")
    (tmp_path / "train.py").write_text(
        program if trains else "print('trained')\n"
    )
    (tmp_path / "hosts.txt").write_text("kr-h0 slots=2\nkr-h1:2\n")
    program, verb, *words = command.split()
    assert program == "keras-ring"
    words = [
        word.replace("node1", "kr-h0").replace("node2", "kr-h1")
        for word in words
    ]
    if verb == "run":
        words[words.index("python")] = sys.executable
    started = lab.keras_ring(verb, "--rsh", lab.ssh, *words)
    done = jobs.run(["sh", "-c", f'cd {tmp_path} && exec "$@"', "sh", *started])
    assert done.returncode == 0, done.stderr
    if trains:
        assert "[0] keras_ring: 4 ranks on 2 hosts, " in done.stdout
        assert "data: 1,600 of 6,400 samples on each rank" in done.stdout
    else:
        assert ("trained" in done.stdout) == (verb == "run")


@pytest.mark.long("hosts")
@pytest.mark.parametrize(
    "hosts", ["kr-h0:2,kr-h1:2", "kr-h0:1,kr-h1:2,kr-h2:1", "kr-h1:4,kr-h2:1"]
)
def test_other_placements(lab, jobs, hosts):
    done = jobs.run(lab.run(hosts, "--", sys.executable, DIGITS), limit=140)
    assert done.returncode == 0, done.stderr
    sums = _checksums(done.stdout)
    assert len(sums) == sum(int(each[-1]) for each in hosts.split(","))
    assert len(set(sums)) == 1


def test_a_program_of_one_process_trains_unchanged(lab, jobs):
    script = str(ROOT / "tests" / "auto" / "scripts" / "digits_mlp.py")
    alone = jobs.run([sys.executable, script], limit=120)
    assert alone.returncode == 0, alone.stderr
    command = ("--auto", "--", sys.executable, script)
    done = jobs.run(lab.run("kr-h0:1,kr-h1:2", *command), limit=120)
    assert done.returncode == 0, done.stderr
    assert "gradients averaged over 3 ranks" in done.stderr
    (accuracy,) = re.findall(r"^Test accuracy.*", alone.stdout, re.MULTILINE)
    assert accuracy in done.stdout.splitlines()
    assert "[1]" not in done.stdout
