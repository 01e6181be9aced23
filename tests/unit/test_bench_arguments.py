"""The words of `keras-ring bench`, and the cases that they stand for."""

import argparse

import pytest

from keras_ring.bench import command, shapes
from keras_ring.bench.case import WIRE_DTYPES
from keras_ring.launch.cli import bench_arguments as arguments_module
from keras_ring.launch.cli import cli


def cases_of(*words):
    """Returns the cases that these words ask for."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    arguments_module.add_bench_arguments(parser)
    arguments = parser.parse_args(words)
    arguments_module.check_bench_arguments(arguments)
    return command.make_cases(arguments)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4", 4),
        ("12B", 12),
        ("64KiB", 65536),
        ("1 MiB", 1 << 20),
        ("3GiB", 3 << 30),
    ],
)
def test_sizes(text, num_bytes):
    assert arguments_module.parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "0", "-4", "1KB", "MiB", "1.5MiB", "٤"])
def test_what_is_no_size(text):
    with pytest.raises(argparse.ArgumentTypeError, match="64KiB"):
        arguments_module.parse_bytes(text)


def test_allreduce():
    cases = cases_of(
        *("allreduce", "--min-bytes=4", "--max-bytes=1MiB", "--factor=512"),
        *("--dtype=float16", "--op=Max"),
    )
    assert [case.name for case in cases] == [
        "allreduce 4 B",
        "allreduce 2 KiB",
        "allreduce 1 MiB",
    ]
    assert [case.shapes for case in cases] == [
        ((2,),),
        ((1024,),),
        ((1 << 19,),),
    ]
    assert {(case.dtype, case.op) for case in cases} == {("float16", "Max")}


def test_a_size_below_an_element_is_one_element():
    (case,) = cases_of(
        "allreduce", "--min-bytes=1", "--max-bytes=1", "--dtype=int64"
    )
    assert (case.shapes, case.num_bytes) == (((1,),), 8)


def test_grouped():
    cases = cases_of("grouped", "--tensors=1,8", "--bytes=1KiB")
    assert [case.shapes for case in cases] == [((256,),), ((32,),) * 8]
    assert all(case.grouped and not case.fresh for case in cases)
    assert {case.num_bytes for case in cases} == {1024}


def test_step():
    assert [c.name for c in cases_of("step")] == ["resnet50", "many_small"]
    (case,) = cases_of("step", "resnet50", "--fresh", "--grouped")
    assert case.name == "resnet50 fresh grouped"
    assert len(case.shapes) == 161
    assert case.num_bytes == 4 * 25_557_032
    assert case.fresh and case.grouped


@pytest.mark.parametrize(
    ("name", "num_tensors", "num_elements"),
    [
        ("vgg16", 32, 138_357_544),
        ("bert_large", 391, 335_141_888),
        ("many_small", 1000, 256_000),
    ],
)
def test_sets(name, num_tensors, num_elements):
    (case,) = cases_of("step", name)
    assert len(case.shapes) == num_tensors
    assert case.num_bytes == 4 * num_elements


def test_the_mixed_set():
    (case,) = cases_of("step", "mixed")
    sizes = sorted(4 * size for (size,) in case.shapes)
    assert len(sizes) == 3000
    assert (sizes[0], sizes[-1]) == (4, 256 << 10)
    # As many below the geometric middle as above.
    assert sizes[1500] == pytest.approx(1 << 10, rel=0.01)
    following = [
        abs(a - b)
        for (a,), (b,) in zip(case.shapes, case.shapes[1:], strict=False)
    ]
    assert sum(following) / len(following) > 1000


@pytest.mark.parametrize(
    ("compression", "dtype", "wire_dtype"),
    [
        ("fp16", "float32", "float16"),
        ("bf16", "float64", "bfloat16"),
        ("bf16", "float16", "float16"),
        ("fp16", "int64", "int64"),
        ("none", "float32", "float32"),
    ],
)
def test_compression(compression, dtype, wire_dtype):
    (case,) = cases_of(
        *("grouped", "--tensors=2", "--bytes=1KiB"),
        *(f"--dtype={dtype}", f"--compression={compression}"),
    )
    more = "" if compression == "none" else f" {compression}"
    assert case.name == f"1 KiB in 2 grouped{more}"
    assert case.wire_dtype == wire_dtype


def test_the_launcher_knows_the_sets_and_compressions():
    assert set(arguments_module.STEPS) == set(shapes.STEPS)
    assert set(arguments_module.COMPRESSIONS) == set(WIRE_DTYPES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "required: KIND"),
        ("nothing", "nothing"),
        ("step vgg", "unknown set of tensors vgg;"),
        ("allreduce --min-bytes=2KiB --max-bytes=4", "above --max-bytes 4"),
        ("allreduce --factor=1", "at least 2"),
        ("allreduce --op=Mean", "Mean"),
        ("allreduce --fresh", "--fresh"),
        ("grouped --tensors=1,0", "at least 1"),
        ("grouped --iterations=0", "at least 1"),
        ("grouped --seconds=soon", "not a time"),
        ("grouped --api=mpi", "mpi"),
        ("grouped --compression=int8", "int8"),
        ("grouped --explain --json", "--explain is not for --json"),
        ("step --api=none --explain", "--explain is not for --api none"),
        ("allreduce --api=gradients", "step alone, not for allreduce"),
        ("step --api=gradients --grouped", "step alone, not for --grouped"),
    ],
)
def test_bad_words_are_one_line_and_2(words, message, capsys):
    assert cli.main(["bench", *words.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith("keras-ring: error: ")
    assert message in told
    assert told.count("\n") == 1
