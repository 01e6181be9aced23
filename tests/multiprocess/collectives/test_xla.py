"""Functions with `jit_compile=True`; dtypes and shapes are in test_ops.py."""

import os

import numpy as np
import pytest

import keras_ring as kr
from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_graph, rank_xla
from tests.tiers import few

pytestmark = pytest.mark.skipif(
    not kr.xla_built(), reason="not built for this TensorFlow"
)


# Few small calls run one after another, large ones when they can.
@pytest.mark.parametrize("elements", [4, 200])
def test_ranks_may_ask_in_opposite_orders(elements):
    run_ranks(rank_xla.opposite_orders, 2, args=(elements,))


def test_so_may_chains_of_them():
    run_ranks(rank_xla.opposite_chains, 2)


def test_one_rank_may_need_one_result_for_the_other():
    run_ranks(rank_xla.chained_on_one_rank, 2)


def test_order_goes_through_variables_too():
    result = run_ranks(rank_xla.orders_with_variables, 2)
    assert result.values == [[[x] * 4 for x in (8.0, 16.0, 24.0)]] * 2


def test_what_has_no_way_out_ends_with_an_error():
    result = run_ranks(
        rank_xla.no_way_out, 2, env={"KERAS_RING_STALL_CHECK_TIME": "1"}
    )
    for kind, text in result.values:
        assert kind == "FailedPreconditionError"
        assert "rank 0 waits for allreduce 'a'; rank 1 waits for" in text


def test_collectives_run_as_often_as_the_program_says():
    result = run_ranks(rank_xla.executions, 2, deadline=90)
    for counts in result.values:
        assert counts == {
            "constant": 2,
            "twins": 4,
            "unused": 2,
            "loop": 10,
            "loop_of_constants": 10,
            "open_loop": 14,  # 1, 2, ... 128, twice
            "branch": 2,
            "nested": 4,
        }


def test_automatic_clustering_leaves_the_other_ops_alone():
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    run_ranks(rank_graph.overlap, 2, env={"TF_XLA_FLAGS": flags})


def test_gradients_of_compiled_functions():
    result = run_ranks(rank_xla.gradient_of_a_compiled_function, 2)
    # Of (x0 + x1) ** 3, added up over two ranks: 2 * 3 * s**2, 2 * 2 * 6 * s,
    # the latter once more for the reduction of the first.
    assert result.values == [([54.0, 216.0], [72.0, 144.0])] * 2


def test_errors_are_the_same_on_all_ranks():
    result = run_ranks(rank_xla.errors, 2)
    texts = {
        "shape": "allreduce 'e1': the ranks disagree on the shape: rank 0 has "
        "[4]; rank 1 has [5].",
        "op": "'e2': the ranks disagree on the reduce op",
        "kind": "'e3': the ranks disagree on the operation",
        "scale": "'e4': the ranks disagree on the prescale factor",
        "two": "'e6': the ranks disagree on the shape",
    }
    for messages in result.values:
        for case, text in texts.items():
            kind, message = messages[case]
            assert kind == "FailedPreconditionError"
            assert text in message
        kind, message = messages["root"]
        assert kind == "InvalidArgumentError"
        assert "'e5': root rank 99 is not a rank of this job" in message
        kind, message = messages["name"]
        assert kind == "InvalidArgumentError"
        assert "must have 1 to 4096 bytes; received 0" in message
        for case in ("allgather", "barrier"):
            kind, message = messages[case]
            assert kind == "NotImplementedError"
            assert "cannot be compiled by XLA" in message
            assert "outside of the function" in message


def test_failed_steps_do_not_leak():
    result = run_ranks(rank_xla.failed_again_and_again, 2, deadline=90)
    # A step starts 2 MiB; twenty that leaked would be 40 MiB.
    assert max(result.values) < 10 << 20


def test_any_name_will_do():
    run_ranks(rank_xla.odd_names, 2)


def test_before_init_and_after_shutdown():
    result = run_ranks(rank_xla.before_init, 2)
    for first, value, last in result.values:
        assert value == [1.0] * 4
        for kind, message in (first, last):
            assert kind == "FailedPreconditionError"
            assert "call keras_ring.init() first" in message


@pytest.mark.parametrize("num_ranks", few([2, 1], "parity"))
def test_fit_gives_what_it_gives_without(num_ranks):
    scale = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
    result = run_ranks(rank_xla.trainings, num_ranks, deadline=150 * scale)
    for name, runs in result.values[0].items():
        plain, compiled = runs
        tolerance = 1e-3 if name == "mixed" else 1e-6
        np.testing.assert_allclose(
            plain["losses"], compiled["losses"], rtol=tolerance
        )
        for one, other in zip(
            plain["weights"], compiled["weights"], strict=True
        ):
            np.testing.assert_allclose(one, other, atol=tolerance)
        # Else nothing was compiled.
        assert plain["digest"] != compiled["digest"]
        for run in (0, 1):
            digests = {rank[name][run]["digest"] for rank in result.values}
            assert len(digests) == 1, f"{name}: the ranks differ"


def test_a_tape_gives_what_it_gives_without():
    result = run_ranks(rank_xla.tapes, 2, deadline=90)
    for run in (0, 1):
        assert len({rank[run]["digest"] for rank in result.values}) == 1
    plain, compiled = result.values[0]
    np.testing.assert_allclose(plain["losses"], compiled["losses"], rtol=1e-5)
    assert compiled["losses"][-1] < 0.7 * compiled["losses"][0]
    for one, other in zip(plain["weights"], compiled["weights"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
