"""The arguments of `keras-ring bench`, which `keras_ring.bench` runs."""

import argparse
import re

from keras_ring.protocol.frameworks import FRAMEWORKS

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
)
OPS = ("Average", "Sum", "Min", "Max", "Product")
COMPRESSIONS = ("none", "fp16", "bf16")
STEPS = ("resnet50", "many_small", "mixed", "vgg16", "bert_large")
# The default sets. The others take seconds and gigabytes.
_USUAL_STEPS = STEPS[:2]
_UNITS = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}


def parse_bytes(text: str) -> int:
    """Returns the number of bytes of "4", "64KiB", "1MiB" or "2GiB"."""
    match = re.fullmatch(r"([1-9][0-9]*) ?([KMG]iB|B|)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; write 4, 64KiB, 1MiB or 2GiB"
        )
    return int(match[1]) << _UNITS[match[2]]


def parse_counts(text: str) -> list[int]:
    """Returns the positive integers of "1,10,100"."""
    return [parse_count(word) for word in text.split(",")]


def parse_count(text: str) -> int:
    """Returns a positive integer."""
    return _integer(text, 1)


def _factor(text: str) -> int:
    return _integer(text, 2)


def _warmup(text: str) -> int:
    return _integer(text, 0)


def _integer(text: str, low: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= low):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer of at least {low}"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 1e8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
    return seconds


def add_bench_arguments(bench: argparse.ArgumentParser) -> None:
    """Adds the kinds of benchmark and their options.

    Args:
        bench: The parser of the arguments after `keras-ring bench`.
    """
    kinds = bench.add_subparsers(dest="kind", metavar="KIND", required=True)
    allreduce = kinds.add_parser("allreduce", help="one tensor, size by size")
    _size_option(allreduce, "--min-bytes", "4", "the first size")
    _size_option(allreduce, "--max-bytes", "64MiB", "the last size, at most")
    allreduce.add_argument(
        "--factor",
        type=_factor,
        default=4,
        metavar="F",
        help="each size is F times the last (default: 4)",
    )
    grouped = kinds.add_parser("grouped", help="many tensors as one operation")
    grouped.add_argument(
        "--tensors",
        type=parse_counts,
        default="1,10,100,1000",
        metavar="N[,N...]",
        help="how many tensors (default: 1,10,100,1000)",
    )
    _size_option(grouped, "--bytes", "16MiB", "the size of all together")
    step = kinds.add_parser("step", help="what a training step reduces")
    step.add_argument(
        "sets",
        nargs="*",
        metavar="SET",
        help=f"the sets of tensors: {', '.join(STEPS)}"
        f" (default: {', '.join(_USUAL_STEPS)})",
    )
    step.add_argument(
        "--fresh",
        action="store_true",
        help="make the tensors in the step, as gradients are",
    )
    step.add_argument(
        "--grouped",
        action="store_true",
        help="reduce them as one operation, not one each",
    )
    for kind in (allreduce, grouped, step):
        _add_common(kind)
    processor = kinds.add_parser(
        "processor",
        help="what this machine's processors take for messages and memory, for"
        " the simulation of large jobs; without ranks",
    )
    _add_json(processor)


def check_bench_arguments(arguments: argparse.Namespace) -> None:
    """Checks combinations of arguments, and sets the default of `sets`.

    Raises:
        ValueError: If a set is unknown, or arguments contradict each other.
    """
    if arguments.kind == "step":
        # `choices` of argparse would refuse an empty list.
        unknown = set(arguments.sets) - set(STEPS)
        if unknown:
            raise ValueError(
                f"unknown set of tensors {', '.join(sorted(unknown))}; "
                f"there are {', '.join(STEPS)}"
            )
        arguments.sets = arguments.sets or list(_USUAL_STEPS)
    if arguments.kind == "processor":
        return
    if arguments.api == "gradients" and (
        arguments.kind != "step" or arguments.grouped
    ):
        what = "--grouped" if arguments.kind == "step" else arguments.kind
        raise ValueError(f"--api gradients is for step alone, not for {what}")
    if arguments.explain and (arguments.json or arguments.api == "none"):
        other = "--json" if arguments.json else "--api none"
        raise ValueError(f"--explain is not for {other}")
    if arguments.kind == "allreduce":
        low, high = arguments.min_bytes, arguments.max_bytes
        if low > high:
            raise ValueError(f"--min-bytes {low} is above --max-bytes {high}")


def _size_option(
    parser: argparse.ArgumentParser, name: str, default: str, what: str
) -> None:
    parser.add_argument(
        name,
        dest="num_bytes" if name == "--bytes" else None,
        type=parse_bytes,
        default=default,
        metavar="SIZE",
        help=f"{what}, such as 4 or 64KiB (default: {default})",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        metavar="DTYPE",
        help=f"{', '.join(DTYPES)} (default: float32)",
    )
    parser.add_argument(
        "--op",
        choices=OPS,
        default="Average",
        metavar="OP",
        help=f"{', '.join(OPS)} (default: Average)",
    )
    parser.add_argument(
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help=f"how values travel: {', '.join(COMPRESSIONS)} (default: none)",
    )
    parser.add_argument(
        "--api",
        choices=("keras_ring", "gradients", "none"),
        default="keras_ring",
        help="gradients: a step's tensors as a training reduces them, the small"
        " ones by shared ops; none: a copy in place of the collective, which is"
        " the floor",
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        help=f"whose tensors: {', '.join(FRAMEWORKS)} (default: the first of"
        " them that is installed)",
    )
    parser.add_argument(
        "--iterations",
        type=parse_count,
        metavar="N",
        help="how often each case runs (default: as --seconds allow)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="how long each case runs, from 5 to 200 times (default: 1)",
    )
    parser.add_argument(
        "--warmup",
        type=_warmup,
        default=5,
        metavar="N",
        help="how often each case runs before that (default: 5)",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print first what links cost, and which algorithms that makes",
    )
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line"
    )
