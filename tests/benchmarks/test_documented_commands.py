"""Every command of docs/performance.md runs, with less to do than it says."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.comparing.comparison import Comparison
from tests.benchmarks.command import ROOT, run, run_command
from tests.lab import lab as lab_module
from tests.tiers import few

PAGE = (ROOT / "docs/performance.md").read_text()
# Options that win over those before them.
_ONCE = ("--iterations=1", "--warmup=0")
_RECORDED = Path("benchmarks/out/results.json")


def documented_commands():
    """Returns the lines of the page's shell blocks, continued ones as one."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def shortened(words, tmp_path):
    """Returns the words of a command, and options that leave little to do.

    A command that is not known here is a `KeyError`: say how to shorten it.
    """
    if "bench" in words:
        kind = words[words.index("bench") + 1]
        if kind == "processor":
            return words  # takes seconds
        return [*words, *_ONCE, *_BENCH_OPTIONS[kind]]
    script = next(word for word in words if word.startswith("benchmarks."))
    return [*words, *_script_options(tmp_path)[script]]


_BENCH_OPTIONS = {
    "allreduce": ("--max-bytes=4KiB",),
    "grouped": ("--bytes=4KiB",),
    "step": (),
}


def _script_options(tmp_path):
    return {
        "benchmarks.compare": (
            *("--rounds=1", "--iterations=1", "--warmup=1"),
            *("--systems=keras_ring", "--sections=ladder", "--max-bytes=4"),
            *("--yardstick-bytes=1MiB", f"--out={tmp_path}"),
        ),
        "benchmarks.hosts": (
            *("--hosts=2x1", "--links=unlimited", "--cases=4B"),
            *("--rounds=1", "--iterations=1", "--warmup=1"),
            *("--systems=keras_ring", f"--out={tmp_path / 'hosts.json'}"),
        ),
        "benchmarks.tls": ("--rounds=1", "--iterations=1", "--sizes=4KiB"),
        "benchmarks.allocator": (
            *("--rounds=1", "--steps=1", "--width=4", "--batch=1"),
            "--models=dense",
        ),
        "benchmarks.callback_cost": (
            *("--rounds=1", "--steps=2", "--epochs=1"),
            "--layers=1",
        ),
        "benchmarks.fit_scaling": (
            *("--rounds=1", "--steps=1", "--epochs=1"),
            *("--width=4", "--batch=1", "--models=dense"),
        ),
        "benchmarks.idle_agents": ("--hosts=2", "--seconds=1"),
        "benchmarks.many_variables": (
            *("--iterations=1", "--variables=300", "--bytes=1MiB", "--parts=8"),
        ),
        "benchmarks.timeline_cost": ("--pairs=1", "--steps=1"),
        "benchmarks.training_checks": ("--variables=4", "--seconds=0.1"),
        "benchmarks.threads": (
            *("--rounds=1", "--steps=1", "--width=2", "--only=default"),
        ),
    }


def as_run(words):
    """Returns the arguments for this Python."""
    if words[0] == "python":
        return words[1:]
    assert words[0] == "keras-ring"
    # The programs that it starts are in nobody's PATH.
    inner = {
        "keras-ring": [sys.executable, "-m", "keras_ring"],
        "python": [sys.executable],
    }
    rest = [word for each in words[1:] for word in inner.get(each, [each])]
    return ["-m", "keras_ring", *rest]


def needs_hosts(words):
    """Whether a command starts ranks on several hosts."""
    return "-H" in words or "benchmarks.hosts" in words


def run_on_hosts(words):
    """Runs `keras-ring run -H HOSTS ...` on the hosts of the lab."""
    index = words.index("-H")
    hosts = [f"kr-{host}" for host in words[index + 1].split(",")]
    rest = as_run([words[0], *words[index + 2 :]])[2:]
    with lab_module.lab(len(hosts)) as lab:
        return run_command(lab.run(",".join(hosts), *rest))


def test_there_are_commands():
    assert len(documented_commands()) > 8


@pytest.mark.parametrize("line", few(documented_commands(), "benchmarks", 0))
def test_command(line, tmp_path):
    words = shlex.split(line, comments=True)
    if f"--replay={_RECORDED}" in words:
        recorded = tmp_path / "results.json"
        recorded.write_text(Comparison({}, {}, {}, [], [], [], []).to_json())
        words[words.index(f"--replay={_RECORDED}")] = f"--replay={recorded}"
    words = shortened(words, tmp_path)
    if needs_hosts(words) and (why := lab_module.missing()):
        pytest.skip(why)
    done = run_on_hosts(words) if "-H" in words else run(*as_run(words))
    assert done.returncode == 0, done.stderr
    assert done.stdout
