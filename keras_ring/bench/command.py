"""`keras-ring bench`, as each rank runs it."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from typing import Any

from keras_ring import errors
from keras_ring.bench import cases, table
from keras_ring.bench.case import Case
from keras_ring.bench.contents import WrongResultError
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.measure import Budget, Meter
from keras_ring.protocol import contract
from keras_ring.protocol.frameworks import FRAMEWORKS

_FAILED = 1


def run(arguments: argparse.Namespace) -> int:
    """Measures the requested cases; rank 0 prints the results.

    Args:
        arguments: The arguments that `bench_arguments` of the command parses.

    Returns:
        The exit code: 1 if a result was wrong or the job did not start.
    """
    if arguments.kind == "processor":
        return _run_processor(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from keras_ring.core import gpus

    try:
        system = _system(arguments)
        if system.rank == 0 and arguments.explain:
            print(gpus.explanation(), flush=True)
            if not gpus.why_none():
                text = gpus.explanation(of_gpus=True)
                print(f"tensors of GPUs: {text}", flush=True)
        link = system.link()
        if system.rank == 0 and not arguments.json:
            print(_heading(arguments, system.size, link), flush=True)
        meter = Meter(
            system,
            Budget(
                iterations=arguments.iterations,
                seconds=arguments.seconds,
                warmup=arguments.warmup,
            ),
            link,
        )
        for case in make_cases(arguments):
            record = meter.measure(case)
            if system.rank == 0:
                line = json.dumps(record.summary())
                print(line if arguments.json else table.row(record), flush=True)
    except (
        WrongResultError,
        errors.ConfigurationError,
        errors.BuildMismatchError,
        errors.StartError,
    ) as error:
        what = "wrong result: " if isinstance(error, WrongResultError) else ""
        return _fail(f"{what}{error}")
    return 0


def _system(arguments: argparse.Namespace) -> Any:
    """Returns keras_ring on the wanted framework, or the first that is there.

    Raises:
        ConfigurationError: If it is not there.
    """
    there = [
        each
        for each in FRAMEWORKS
        if importlib.util.find_spec(each) is not None
    ]
    wanted = arguments.framework or (there or ["tensorflow"])[0]
    if wanted not in there:
        found = f"it has {', '.join(there)}" if there else "it has none"
        raise errors.ConfigurationError(
            f"{sys.executable} has no {wanted}: {found} of "
            f"{', '.join(FRAMEWORKS)}. Install it, or choose "
            "another one by --framework."
        )
    # Only now: TensorFlow reads its variables when it is imported.
    systems = importlib.import_module(f"keras_ring.bench.on_{wanted}").SYSTEMS
    if arguments.api not in systems:
        raise errors.ConfigurationError(
            f"--api {arguments.api} is there on tensorflow alone, not on "
            f"{wanted}."
        )
    return systems[arguments.api]()


def _run_processor(arguments: argparse.Namespace) -> int:
    from keras_ring.bench import processor

    size = os.environ.get(contract.SIZE, "1")
    if size != "1":
        return _fail(
            f"`bench processor` measures a machine, and {size} ranks on it"
            " would disturb each other; run it without `keras-ring run`"
        )
    try:
        found = processor.measure()
    except OSError as error:
        return _fail(f"loopback cannot be used: {error}")
    if arguments.json:
        print(json.dumps(found.settings()), flush=True)
    else:
        print(processor.table(found), flush=True)
    return 0


def _fail(text: str) -> int:
    print(f"keras-ring: error: {text}", file=sys.stderr, flush=True)
    return _FAILED


def make_cases(arguments: argparse.Namespace) -> list[Case]:
    """Returns the requested cases."""
    return [
        cases.compressed(case, arguments.compression)
        for case in _plain_cases(arguments)
    ]


def _plain_cases(arguments: argparse.Namespace) -> list[Case]:
    dtype, op = arguments.dtype, arguments.op
    if arguments.kind == "allreduce":
        sizes = cases.ladder(
            arguments.min_bytes, arguments.max_bytes, arguments.factor
        )
        return cases.allreduce(sizes, dtype=dtype, op=op)
    if arguments.kind == "grouped":
        return cases.parts(
            arguments.tensors,
            arguments.num_bytes,
            dtype=dtype,
            op=op,
            grouped=True,
        )
    return [
        cases.step(
            name,
            dtype=dtype,
            op=op,
            grouped=arguments.grouped,
            fresh=arguments.fresh,
        )
        for name in arguments.sets
    ]


def _heading(arguments: argparse.Namespace, size: int, link: HostLink) -> str:
    ranks = f"{size} rank{'s' if size > 1 else ''}"
    if link.hosts > 1:
        ranks += f" on {link.hosts} hosts"
    floor = ", no collective" if arguments.api == "none" else ""
    first = f"{ranks}, {arguments.dtype}, {arguments.op}{floor}"
    lines = [f"{first}; bandwidths in GB/s"]
    if link.gb_s is not None:
        lines.append(
            "plain TCP from host to host, both ways at once: "
            f"{link.gb_s:.3f} GB/s each way"
            + (
                f", {link.cpu_s_per_gb:.3g} CPU s/GB of all hosts"
                if link.cpu_s_per_gb is not None
                else ""
            )
        )
    elif link.problem:
        lines.append(f"plain TCP was not measured: {link.problem}")
    return "\n".join([*lines, table.header(link)])
