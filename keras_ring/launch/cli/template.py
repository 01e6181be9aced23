"""`keras-ring template`: prints a file that starts a job in another way."""

import argparse
import json
import re
import secrets
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources

from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.usage import UsageError

# Files of templates, by engine; Kubernetes has several.
_FILES = {"slurm": "slurm.sh.in", "mpi": "mpi.sh.in", "ray": "ray.py.in"}
_KINDS = ("job", "jobset", "mpijob", "trainjob")
ENGINES = (*_FILES, "kubernetes")
# A name of Kubernetes, with room for suffixes.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
# The position of a pod's template, which also sets its indentation.
_POD = re.compile(r"^@\{pod\}$", re.MULTILINE)
_PORT = 29400
_FIRST_POD = {"job": "{}-0", "jobset": "{}-ranks-0-0"}
_IMAGE = "registry.example.com/train:latest"
# The placeholders have no `$`, which belongs to shells.
_VALUE = re.compile(r"@\{(\w+)\}")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    engines = parser.add_subparsers(
        dest="engine", metavar="ENGINE", required=True
    )
    for name in ENGINES:
        engine = engines.add_parser(
            name,
            usage=f"keras-ring template {name} [options] [-- python train.py]",
        )
        _add_options(engine, of_kubernetes=name == "kubernetes")


def _add_options(
    parser: argparse.ArgumentParser, *, of_kubernetes: bool
) -> None:
    numbers = {
        "--hosts": (2, "hosts"),
        "--ranks-per-host": (2, "ranks on each of them"),
        "--cpus-per-rank": (4, "cores of each rank"),
    }
    if of_kubernetes:
        numbers["--memory-per-rank"] = (8, "GiB of each rank")
        parser.add_argument(
            "--kind",
            choices=_KINDS,
            default=_KINDS[0],
            help=f"of the job (default: {_KINDS[0]})",
        )
        parser.add_argument(
            "--image", default=_IMAGE, help="that has the program, and Python"
        )
    for option, (default, what) in numbers.items():
        parser.add_argument(
            option,
            type=int,
            default=default,
            metavar="N",
            help=f"{what} (default: {default})",
        )
    parser.add_argument(
        "--name", default="train", help="of the job (default: train)"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="program and arguments"
    )


def template(arguments: argparse.Namespace) -> str:
    """Returns the text of the file.

    Raises:
        UsageError: If the arguments are invalid.
    """
    for name, value in vars(arguments).items():
        if isinstance(value, int) and value < 1:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} {value}: expected at least 1")
    if _NAME.fullmatch(arguments.name) is None:
        raise UsageError(
            f"--name {arguments.name!r}: expected up to 40 lower-case letters,"
            " digits and hyphens, a letter first"
        )
    command = list(arguments.command)
    if command[:1] == ["--"]:
        del command[0]
    command = command or ["python", "train.py"]
    if arguments.engine == "ray" and not _is_script(command):
        raise UsageError(
            "of a command for Ray the first word is python and the second a"
            f" script, for actors run that; got {shlex.join(command)!r}"
        )
    return _filled(arguments, command)


def _is_script(command: Sequence[str]) -> bool:
    python = re.fullmatch(r"(.*/)?python[0-9.]*", command[0]) is not None
    return python and len(command) > 1 and not command[1].startswith("-")


def _filled(arguments: argparse.Namespace, command: Sequence[str]) -> str:
    hosts, per_host = arguments.hosts, arguments.ranks_per_host
    values = {
        "name": arguments.name,
        "hosts": hosts,
        "ranks_per_host": per_host,
        "ranks": hosts * per_host,
        "cpus_per_rank": arguments.cpus_per_rank,
        "command": shlex.join(command),
        # A list in YAML and in Python.
        "command_list": json.dumps(list(command)),
        "host_list": ",".join(f"node{i + 1}:{per_host}" for i in range(hosts)),
    }
    if arguments.engine != "kubernetes":
        return _fill(_read(_FILES[arguments.engine]), values)
    if re.fullmatch(r"[\w./:@-]+", arguments.image, re.ASCII) is None:
        raise UsageError(f"--image {arguments.image!r} is no name of an image")
    first_pod = _FIRST_POD.get(arguments.kind, "").format(arguments.name)
    values |= {
        "cpus_per_host": arguments.cpus_per_rank * per_host,
        "memory_per_rank": arguments.memory_per_rank,
        "memory_per_host": arguments.memory_per_rank * per_host,
        "image": arguments.image,
        "key": secrets.token_hex(32),
        "rendezvous": f"{first_pod}.{arguments.name}:{_PORT}",
    }
    text = _read(f"kubernetes-{arguments.kind}.yaml.in")
    return _fill(_with_pod(text), values)


def _with_pod(text: str) -> str:
    """Returns a manifest with the pods' template below its `template:`."""
    found = _POD.search(text)
    if found is None:
        return text
    above = text[: found.start()].rstrip("\n").rpartition("\n")[2]
    indent = " " * (len(above) - len(above.lstrip()) + 2)
    pod = textwrap.indent(_read("kubernetes-pod.yaml.in").rstrip("\n"), indent)
    return text[: found.start()] + pod + text[found.end() :]


def _fill(text: str, values: Mapping[str, object]) -> str:
    return _VALUE.sub(lambda found: str(values[found[1]]), text)


def _read(name: str) -> str:
    folder = resources.files("keras_ring.launch.cli") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _run(arguments: argparse.Namespace) -> int:
    print(template(arguments), end="")
    return 0


TEMPLATE = Verb(
    name="template",
    help="print a file that starts a job by Slurm, MPI, Ray or Kubernetes",
    example="keras-ring template slurm -- python train.py",
    add_arguments=_add_arguments,
    run=_run,
)
