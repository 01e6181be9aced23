"""`keras-ring bench`, as each rank runs it."""

from __future__ import annotations

import argparse
import json
import os
import sys

from keras_ring import errors
from keras_ring.bench import cases, table
from keras_ring.bench.case import Case
from keras_ring.bench.contents import WrongResultError
from keras_ring.bench.host_link import HostLink
from keras_ring.bench.measure import Budget, Meter
from keras_ring.protocol import contract

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
    # Only now: TensorFlow reads the variable when it is imported.
    from keras_ring.bench import ours
    from keras_ring.core import gpus

    try:
        system = ours.SYSTEMS[arguments.api]()
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
