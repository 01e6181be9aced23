"""`--auto` trains programs of Keras on any framework as one process does.

A folder of a framework has a class of its own, with the module of its ranks.
"""

import numpy as np
import pytest

from tests.auto.alike import require_alike
from tests.harness import run_calls
from tests.tiers import few

__all__ = ["one_rank", "ranks"]

# Operations of Keras compute in float32, whatever the type of the model.
BOUND = 2e-5

EXACT = (
    *("plain", "normalized", "masked", "weighted", "weighted_mean"),
    *("classes", "sums", "several_outputs", "own_loss", "own_loss_class"),
    *("own_metrics", "regularized", "own_layer", "own_compute_loss"),
    *("generated", "dataset", "own_loop_over_epochs", "called_back"),
    *("accumulated", "averaged", "few_rows", "few_rows_of_own"),
    *("single_batches", "adversaries", "evaluated_within"),
    *("own_step", "own_step_with_compute_loss", "own_step_with_own_loss"),
    *("own_metrics_of_step", "own_step_that_counts"),
)
# They are given a folder.
WRITE = ("files", "recorded")
SHUFFLED = ("shuffled", "shuffled_after_own_lines")
FREE = ("dropout", *SHUFFLED, "own_step_that_draws")
REFUSED = {
    "rows_compared": "output 0 is up to",
    "state_kept": "after it variable",
    "rows_counted": "runs on a batch as it is and not on the rows of a rank",
    "own_step_of_sums": "whose step is its own, and on parts of a batch",
    "own_step_of_values": "returns ['error_of_rows'], which are values of",
    "own_metrics_of_rows": "what a metric counts in 'seen/total' is another",
    "no_sum": "updates metric 'largest' (class Largest)",
    "own_loop": "in a loop of the program's own",
    "unequal_data": "up to batch 1, ranks 1",
    "unequal_rows": "tensors have different first dimensions",
}


@pytest.fixture(scope="class")
def one_rank(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("one"))
    made = request.cls
    calls = [(name,) for name in made.EXACT]
    calls += [(name, folder) for name in WRITE]
    of_call = run_calls(made.RANKS, 1, calls, fresh=True, deadline=420)
    return lambda name, *_: of_call(name, *([folder] * (name in WRITE)))[0]


@pytest.fixture(scope="class", params=few([2, 3], "programs", 1))
def ranks(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("several"))
    made = request.cls
    names = (*made.EXACT, *FREE, *made.REFUSED)
    calls = [(name, folder) for name in WRITE]
    calls += [(name,) for name in names]
    of_call = run_calls(
        made.RANKS, request.param, calls, fresh=True, deadline=420
    )
    return lambda name, *_: of_call(name, *([folder] * (name in WRITE)))


class AutoCases:
    """Tests of one framework: `RANKS`, `EXACT` and `REFUSED`."""

    def test_it_is_what_one_process_makes(self, one_rank, ranks):
        far = []
        for name in (*self.EXACT, *WRITE):
            for rank, found in enumerate(ranks(name)):
                try:
                    require_alike(found, one_rank(name), name, BOUND)
                except AssertionError as error:
                    far.append(f"{name}, rank {rank}: {error}")
        assert not far, "\n".join(far)

    def test_what_cannot_be_done_is_refused(self, ranks):
        otherwise = {
            (name, found)
            for name, text in self.REFUSED.items()
            for found in ranks(name)
            if not found.startswith("AutoError: ") or text not in found
        }
        assert not otherwise, otherwise

    def test_ranks_drop_other_elements(self, ranks):
        first, *others = ranks("dropout")
        for weights, dropped in others:
            for a, b in zip(weights, first[0], strict=True):
                assert np.array_equal(a, b)
            assert not np.array_equal(dropped, first[1])

    def test_ranks_draw_the_same_after_trials_of_a_step(self, ranks):
        assert len(set(ranks("own_step_that_draws"))) == 1

    @pytest.mark.parametrize("name", SHUFFLED)
    def test_ranks_read_the_same_order(self, ranks, name):
        first, *others = ranks(name)
        for weights, number in others:
            assert number == first[1]
            for a, b in zip(weights, first[0], strict=True):
                assert np.array_equal(a, b)
