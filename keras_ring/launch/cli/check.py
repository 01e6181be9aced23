"""`keras-ring check`: tests whether a job can run here, and what is missing."""

import argparse
import importlib
import json
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from keras_ring.launch.cli import check_hosts
from keras_ring.launch.cli.run_arguments import (
    add_host_arguments,
    hosts_of,
    number_of_ranks,
)
from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.plan import plan_of_hosts
from keras_ring.launch.request import AUTOMATIC, RunRequest
from keras_ring.launch.sharing import Machine, share_cores
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import cores, processors

_MIN_OPEN_FILES = 1024
# Bytes of shared memory to try, for the buffers of a rank.
_SHARED_BYTES = 1 << 30
_INSTALL = "pip install . (in the keras_ring source directory)"


@dataclass
class Report:
    """The findings of a check.

    Args:
        facts: Dictionary of values by name, in the order in which they are
            shown.
        missing: List of problems that keep a job from running, each with its
            solution.
        advice: List of possible improvements.
    """

    facts: dict[str, object] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Returns whether a job can run."""
        return not self.missing


# Names the framework on which Keras runs.
_BACKEND = "KERAS_BACKEND"


def _is_there(module: str) -> bool:
    """Returns whether a package can be imported; a mere folder is none."""
    from importlib import util

    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None) is not None
    spec = util.find_spec(module)
    return spec is not None and spec.origin is not None


def _check_packages(report: Report) -> None:
    # Imported here, because it is slow to load and only this check needs it.
    from importlib import metadata

    report.facts["Python"] = platform.python_version()
    try:
        report.facts["keras_ring"] = metadata.version("keras_ring")
    except metadata.PackageNotFoundError:
        report.facts["keras_ring"] = None
        report.missing.append(f"keras_ring is not installed: {_INSTALL}")
    others = ("torch", "jax", "mxnet")
    needs_tensorflow = not any(map(_is_there, others))
    for module, name, package, is_needed in (
        ("numpy", "NumPy", "numpy", True),
        (
            *("tensorflow", "TensorFlow", "tensorflow, or tensorflow-cpu"),
            needs_tensorflow,
        ),
        ("keras", "Keras", "keras", needs_tensorflow),
        ("torch", "PyTorch", "torch", False),
        ("jax", "JAX", "jax", False),
        ("mxnet", "MXNet", "mxnet", False),
    ):
        if not is_needed and not _is_there(module):
            report.facts[name] = None
            continue
        try:
            found = importlib.import_module(module)
        except Exception as error:
            # Any exception of an import is reported, and the check goes on.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            report.facts[name] = None
            if module == "keras" and not is_needed and _lacks_backend(error):
                report.advice.append(
                    f"Keras cannot be imported ({reason}), which is its "
                    f"backend: for programs of Keras, set {_BACKEND} to one "
                    f"that is there, such as {next(filter(_is_there, others))}"
                )
                continue
            report.missing.append(
                f"{name} cannot be imported ({reason}): pip install {package}"
            )
        else:
            report.facts[name] = str(getattr(found, "__version__", "?"))


def _lacks_backend(error: Exception) -> bool:
    """Returns whether Keras has found no package of its backend's name."""
    return isinstance(error, ModuleNotFoundError) and error.name in (
        "tensorflow",
        "torch",
        "jax",
    )


def _minor(version: object) -> str:
    return ".".join(str(version).split(".")[:2])


def _check_native(report: Report) -> None:
    try:
        native = importlib.import_module("keras_ring.core.native")
        built = dict(native.build_info())
    except Exception as error:
        # A broken library may raise any exception; its text is reported.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        report.facts["native libraries"] = None
        report.missing.append(
            f"the native libraries cannot be loaded ({reason}): {_INSTALL}"
        )
        return
    report.facts["compiler"] = built.get("compiler")
    report.facts["native libraries"] = built.get("libraries")
    report.facts["CPU kernels"] = built.get("cpu_level")
    versions = built.get("tf_version_built") or ()
    versions = [versions] if isinstance(versions, str) else list(versions)
    minors = [_minor(version) for version in versions]
    report.facts["built for TensorFlow"] = minors
    found = report.facts["TensorFlow"]
    if found is not None and _minor(found) not in minors:
        report.missing.append(
            f"the operations were built for TensorFlow {_show(minors)},"
            f" but {_minor(found)} is installed: {_INSTALL}"
        )


def _check_gpus(report: Report) -> None:
    if report.facts["native libraries"] is None:
        return
    gpus = importlib.import_module("keras_ring.core.gpus")
    found = gpus.gpus()
    if not found:
        report.facts["GPUs"] = f"none: {gpus.why_none()}"
        return
    driver, nccl = gpus.versions()
    report.facts["GPUs"] = [
        f"{gpu.ordinal}: {gpu.name}, {gpu.bytes / 2**30:.0f} GiB"
        for gpu in found
    ]
    report.facts["driver for CUDA"] = f"{driver // 1000}.{driver % 1000 // 10}"
    report.facts["NCCL"] = (
        f"{nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}"
        if nccl
        else "none: collectives of GPUs do without it"
    )
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and not tensorflow.config.list_physical_devices("GPU"):
        report.advice.append(
            "TensorFlow uses none of the GPUs: pip install"
            " 'tensorflow[and-cuda]', if this is tensorflow-cpu or its CUDA"
            " libraries are missing"
        )


def _check_host(report: Report) -> None:
    report.facts["cores"] = len(os.sched_getaffinity(0))
    nodes = processors.here()
    if len(nodes) > 1:
        report.facts["NUMA nodes"] = [
            f"{node.number}: {processors.list_text(node.cpus)}"
            for node in nodes
        ]
        report.facts["interfaces near a node"] = [
            f"{name}: {number}"
            for _, name in socket.if_nameindex()
            if (number := processors.node_of_interface(name)) is not None
        ]
    quota = cores.quota()
    if quota is not None:
        report.facts["cores by quota of the control group"] = round(quota, 2)
    flags = _cpu_flags(Path("/proc/cpuinfo"))
    report.facts["CPU features"] = [
        name
        for name, flag in (("avx2", "avx2"), ("avx512", "avx512f"))
        if flag in flags
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    report.facts["memory GiB"] = round(memory / 2**30, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    report.facts["open-file limit"] = soft
    if 0 <= soft < _MIN_OPEN_FILES:
        report.advice.append(
            f"only {soft} open files per process: ulimit -n"
            f" {_MIN_OPEN_FILES if hard < 0 else min(hard, _MIN_OPEN_FILES)}"
        )


def _check_shared_memory(report: Report) -> None:
    """Tries to make shared memory as ranks of one host do."""
    try:
        fd = os.memfd_create("keras-ring-check")
        try:
            os.ftruncate(fd, _SHARED_BYTES)
        finally:
            os.close(fd)
    except (OSError, AttributeError) as error:
        report.facts["shared memory"] = False
        report.missing.append(
            f"ranks of one host cannot share memory ({error}): allow"
            " memfd_create, and files of 1 GiB (ulimit -f)"
        )
    else:
        report.facts["shared memory"] = True


def _check_ranks(report: Report, num_ranks: int) -> None:
    """Adds the share of this host that each of `num_ranks` ranks gets."""
    machine = Machine.here()
    share = share_cores(num_ranks, machine, os.environ)
    report.facts["threads of each rank"] = share.variables.get(
        "TF_NUM_INTRAOP_THREADS",
        os.environ.get("TF_NUM_INTRAOP_THREADS") or machine.cores,
    )
    if num_ranks <= sum(len(node.cpus) for node in machine.nodes):
        bound = share_cores(
            num_ranks, machine, os.environ, threads=0, bind=True
        )
        report.facts["with --bind"] = bound.notes[0].removeprefix("--bind: ")
    if num_ranks > machine.cores:
        report.advice.append(
            f"{num_ranks} ranks share {machine.cores} cores: more than"
            f" -np {machine.cores} is no faster here"
        )


def _cpu_flags(path: Path) -> set[str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def _check_loopback(report: Report) -> None:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=2.0),
        ):
            report.facts["loopback"] = True
    except OSError as error:
        report.facts["loopback"] = False
        report.missing.append(
            f"127.0.0.1 cannot be used ({error}): ip link set lo up"
        )


_CHECKS: tuple[Callable[[Report], None], ...] = (
    _check_packages,
    _check_native,
    _check_gpus,
    _check_host,
    _check_shared_memory,
    _check_loopback,
)


def _show(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "works" if value else "does not work"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)


def run_check(*, as_json: bool, num_ranks: int | None = None) -> int:
    """Runs all checks of this host, and prints the report.

    Args:
        as_json: Boolean, whether to print one JSON object instead of text.
        num_ranks: Integer, the number of ranks of an intended job. `None` to
            skip the check of their share of the host.

    Returns:
        The exit code: 0 if a job can run here, else 1.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    report = Report()
    for check in _CHECKS:
        check(report)
    if num_ranks is not None:
        _check_ranks(report, num_ranks)
    if as_json:
        print(
            json.dumps({"ready": report.ready, **asdict(report)}, default=str)
        )
        return 0 if report.ready else 1
    width = max(len(name) for name in report.facts)
    for name, value in report.facts.items():
        print(f"{name:<{width}}  {_show(value)}")
    for line in report.missing:
        print(f"missing: {line}")
    for line in report.advice:
        print(f"advice: {line}")
    print("a job can run here" if report.ready else "a job cannot run here")
    return 0 if report.ready else 1


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object"
    )
    parser.add_argument(
        "-np",
        type=number_of_ranks,
        metavar="N",
        help="also say whether N ranks fit on this host, or auto: how many do",
    )
    add_host_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.hosts is not None or arguments.hostfile is not None:
        request = RunRequest(command=(), **hosts_of(arguments))
        plan = plan_of_hosts(request, {socket.gethostname()}, os.environ)
        return check_hosts.run(plan, as_json=arguments.json)
    num_ranks = arguments.np
    if num_ranks == AUTOMATIC:
        num_ranks, _ = Machine.here().num_ranks()
    if num_ranks is not None and num_ranks < 1:
        raise UsageError(f"-np {num_ranks}: expected at least 1")
    return run_check(as_json=arguments.json, num_ranks=num_ranks)


CHECK = Verb(
    name="check",
    help="say whether a job can run here, and what is missing",
    example="keras-ring check -H node1:4,node2:4",
    add_arguments=_add_arguments,
    run=_run,
)
