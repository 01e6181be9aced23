"""The MPIs that tests run, and how their launchers are told what."""

import os
import sys
from pathlib import Path

import pytest

from tests.engines.conftest import ROOT

# Where `make engines` puts those of PyPI.
ENGINES = Path(sys.prefix) / "engines"
_RSH = str(ROOT / "tests" / "lab" / "rsh")


class Mpi:
    """An MPI, and how its launcher is told what.

    Args:
        name: Of its folder; None: Debian's.
    """

    def __init__(self, name, *, always=(), here=(), remote=(), hosts="--host"):
        self._folder = ENGINES / name if name else None
        self._always = list(always)
        self._here = list(here)
        self._remote = list(remote)
        self._hosts = hosts

    def environment(self):
        if self._folder is None:
            return {}
        library = str(self._folder / "lib")
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        variables = {"PATH": path, "LD_LIBRARY_PATH": library}
        if "openmpi" in self._folder.name:
            variables["OPAL_PREFIX"] = str(self._folder)
        return variables

    def reach_hosts(self):
        """Returns variables by which hosts of the lab are reached."""
        return {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": _RSH,
            "MPIRUN_OPTIONS": " ".join([*self._always, *self._remote]),
        }

    def needed(self):
        """Skips the test where this MPI is missing. Returns its launcher."""
        where = self._folder / "bin" if self._folder else Path("/usr/bin")
        program = where / "mpiexec"
        if not program.exists():
            pytest.skip(f"{program} is missing: make engines")
        return program

    def run(self, *words, hosts=None):
        command = [str(self.needed()), *self._always]
        command += [*self._remote, self._hosts, hosts] if hosts else self._here
        return [*command, *words]


MPIS = {
    "mpich": Mpi(
        "mpich",
        remote=("-launcher", "ssh", "-launcher-exec", _RSH),
        hosts="-hosts",
    ),
    "openmpi 5": Mpi(
        "openmpi",
        always=("--allow-run-as-root",),
        here=("--oversubscribe",),
        remote=("--prtemca", "plm_ssh_agent", _RSH),
    ),
    "openmpi 4": Mpi(
        None,
        always=("--allow-run-as-root", "--oversubscribe"),
        remote=("-mca", "plm_rsh_agent", _RSH),
    ),
}
