"""Compressed reductions, to the last bit, on ranks that are processes."""

import pytest

import keras_ring as kr
from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_compressed_ops
from tests.tiers import few

MODES = ["eager", "function", *(["compiled"] if kr.xla_built() else [])]


def run(num_ranks, calls, **options):
    """Runs several functions of rank_compressed_ops in one job."""
    result = run_ranks(
        rank_compressed_ops.several,
        num_ranks,
        args=(calls,),
        deadline=240,
        **options,
    )
    return result.values


@pytest.mark.parametrize("num_ranks", few([3, 2], "programs"))
@pytest.mark.parametrize("mode", MODES)
def test_the_bits_of_the_model(mode, num_ranks):
    values = run(num_ranks, [("exactness", mode)])
    # Dtypes, ops, formats, scales, tensors.
    assert values == [[2 * 5 * 2 * 2 * 4]] * num_ranks


def test_a_rank_alone_rounds_too():
    assert run(1, [("exactness", "eager")]) == [[160]]


def test_on_two_hosts():
    # The sum of each host is rounded as well.
    calls = [
        ("exactness", "function", "exact", 2),
        ("special_values", "eager", 2),
    ]
    run(4, calls, hosts=[0, 0, 1, 1])


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_nan_infinity_and_overflow(num_ranks):
    run(num_ranks, [("special_values", mode) for mode in MODES])


@pytest.mark.parametrize("compiles", [False, kr.xla_built()])
def test_the_graph_has_no_casts(compiles):
    (types,) = run(1, [("graph_ops", compiles)])[0]
    assert "Cast" not in types
    reduces = "KerasRingXlaStart" if compiles else "KerasRingAllreduce"
    assert set(types) <= {
        reduces,
        "KerasRingXlaDone",
        "Placeholder",
        "Identity",
        "NoOp",
    }
    assert reduces in types


def test_integers_and_narrow_floats_are_left_alone():
    run(2, [("others_pass",)])


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_gradients(num_ranks):
    run(num_ranks, [("gradients", mode) for mode in MODES])


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_reducescatter(num_ranks):
    run(num_ranks, [("scattered", mode) for mode in MODES])


def test_own_compressors():
    run(2, [("own_compressors",)])


def test_all_ranks_must_compress_alike():
    values = run(3, [("mismatch",)])
    text = (
        "allreduce 'g': the ranks disagree on the compression: ranks 0-1 have "
        "fp16; rank 2 has none."
    )
    for (message,) in values:
        assert text in message


def test_fit():
    run(2, [("fits",)])
