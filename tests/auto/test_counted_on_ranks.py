"""What a step gives to metrics counts as in one process, or is refused."""

import pytest

from tests.auto import rank_counted
from tests.auto.alike import require_alike, require_same_weights
from tests.harness import run_calls

pytestmark = pytest.mark.timeout(600)

MEANS = ("weighted", "rows_told", "kl", "rate", "each_second")
# What counts by the share of the rows, though its metric does not do so.
BY_SHARE = ("one_told", "columns", "sum_of_means")
EXACT = [
    ("tracked", 31, *MEANS),
    ("tracked", 45, *BY_SHARE),
    ("tracked_single", *MEANS[1:], *BY_SHARE),
    ("adversaries", 103),
]
KINDS = ("root", "largest", "norm", "own_class", "sometimes")
REFUSED = [("tracked_that", "rate", kind) for kind in KINDS]


@pytest.fixture(scope="module")
def one_rank():
    return run_calls(rank_counted, 1, EXACT)


@pytest.fixture(scope="module")
def three_ranks():
    return run_calls(rank_counted, 3, [*EXACT, *REFUSED])


@pytest.mark.parametrize(
    "call", EXACT, ids=lambda call: "-".join(map(str, call))
)
def test_means_count_as_in_one_process(call, one_rank, three_ranks):
    (wanted,) = one_rank(*call)
    of_ranks = three_ranks(*call)
    for found in of_ranks:
        require_alike(found, wanted)
    require_same_weights([found["weights"] for found in of_ranks])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_mean_is_refused(kind, three_ranks):
    name = "BatchRoot" if kind == "own_class" else "Mean"
    # From the fifth step on, as which the fourth batch is compared.
    number = 4 if kind == "sometimes" else 1
    for text in three_ranks("tracked_that", "rate", kind):
        assert text.startswith("AutoError: The step of model 'tracks"), text
        assert "(rank_counted.py:" in text
        assert f"updates metric '{kind}' (class {name})" in text
        assert f"parts of batch {number} leave in it" in text
        assert "`compile(metrics=[...])`" in text
