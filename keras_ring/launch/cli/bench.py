"""`keras-ring bench`: measures collectives, by `keras_ring.bench`."""

import argparse
import importlib

from keras_ring.launch.cli.bench_arguments import (
    add_bench_arguments,
    check_bench_arguments,
)
from keras_ring.launch.cli.verb import Verb
from keras_ring.launch.usage import UsageError


def _run(arguments: argparse.Namespace) -> int:
    try:
        check_bench_arguments(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    # Imported here, because the launcher itself needs no NumPy and no
    # TensorFlow.
    command = importlib.import_module("keras_ring.bench.command")
    return int(command.run(arguments))


BENCH = Verb(
    name="bench",
    help="measure collectives; under `run`, or alone",
    example="keras-ring run -np 4 -- keras-ring bench step",
    add_arguments=add_bench_arguments,
    run=_run,
)
