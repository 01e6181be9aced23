"""Slurm on the hosts of the lab: Debian's slurm-wlm and munge, really run."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab.lab import Lab

_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost=kr-h0({controller})
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
InactiveLimit=10
SlurmdParameters=config_overrides
"""
_STARTS_WITHIN = 20.0


def missing() -> str:
    """Returns why Slurm cannot run here; `""` if it can."""
    for program in ("slurmctld", "slurmd", "srun", "munged"):
        path = os.environ.get("PATH", "") + ":/usr/sbin"
        if shutil.which(program, path=path) is None:
            return f"{program} is missing (Debian's slurm-wlm and munge)"
    return ""


class Slurm:
    """A cluster whose nodes are hosts of the lab.

    Args:
        lab: The hosts.
        folder: Where its configuration, state and logs are.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def on_h0(self, *command: str) -> list[str]:
        """Returns the command that runs a command of Slurm."""
        settings = [f"{k}={v}" for k, v in self.environment.items()]
        return self._lab.on("h0", "env", *settings, *command)

    def ask(self, *command: str) -> str:
        """Runs a command of Slurm; returns what it prints."""
        done = subprocess.run(
            self.on_h0(*command), stdout=subprocess.PIPE, text=True, timeout=20
        )
        return done.stdout

    def wait_until_idle(self) -> None:
        """Waits until no node has anything left to do."""
        end = time.monotonic() + _STARTS_WITHIN
        while True:
            states = set(self.ask("sinfo", "-h", "-N", "-o", "%t").split())
            if states == {"idle"}:
                return
            if time.monotonic() > end:
                raise TimeoutError(
                    f"nodes of Slurm are {states}: {self.logs()}"
                )
            time.sleep(0.1)

    def logs(self) -> str:
        """Returns the last lines of all daemons."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-1500:]}"
            for path in sorted(self._folder.glob("*.log"))
        )


@contextlib.contextmanager
def slurm(lab: Lab, nodes: Sequence[str], cores: int = 4) -> Iterator[Slurm]:
    """Runs Slurm on these hosts of the lab; `h0` also has the controller.

    Args:
        lab: The hosts.
        nodes: Names of those that compute, such as `"h0"`.
        cores: That each of them is said to have.
    """
    folder = Path(tempfile.mkdtemp(prefix="kr-slurm-"))
    daemons = []
    try:
        _write(lab, folder, nodes, cores)
        # Has to be another user's than root's.
        daemons.append(_munge(folder))
        cluster = Slurm(lab, folder)
        settings = {**os.environ, **cluster.environment}
        for command in (
            lab.on("h0", "/usr/sbin/slurmctld", "-D"),
            *(
                lab.on(node, "/usr/sbin/slurmd", "-D", "-N", node)
                for node in nodes
            ),
        ):
            daemons.append(
                subprocess.Popen(
                    command,
                    env=settings,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        cluster.wait_until_idle()
        yield cluster
        cluster.ask("scancel", "--user=root")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write(lab: Lab, folder: Path, nodes: Sequence[str], cores: int) -> None:
    for name in ("state", *nodes):
        (folder / name).mkdir()
    lines = [_CONFIGURATION.format(folder=folder, controller="10.77.0.1")]
    lines += [
        f"NodeName={node} NodeHostname=kr-{node} "
        f"NodeAddr=10.77.0.{int(node[1:]) + 1} CPUs={cores} State=UNKNOWN"
        for node in nodes
    ]
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP")
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    # Each host has its own.
    (folder / "mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")


def _munge(folder: Path) -> subprocess.Popen:
    munge = pwd.getpwnam("munge")
    run = Path("/run/munge")
    run.mkdir(mode=0o755, exist_ok=True)
    os.chown(run, munge.pw_uid, munge.pw_gid)
    with (folder / "munged.log").open("w") as log:
        return subprocess.Popen(
            ["/usr/sbin/munged", "--foreground", "--force"],
            user=munge.pw_uid,
            group=munge.pw_gid,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
