"""What steps keep, and do not train, is that of one process, or refused."""

import pytest

from tests.auto import rank_state
from tests.auto.alike import require_alike, require_same_weights
from tests.harness import run_calls

pytestmark = pytest.mark.timeout(900)

# Of the last batch of 31 rows some ranks have none.
FEW = 31
EXACT = [
    *(
        ("layer", kind)
        for kind in ("center", "scale", "counts", "normed", "codebook")
    ),
    *(("layer", kind, FEW) for kind in ("center", "scale", "codebook")),
    ("layer", "center", 103, "eagerly"),
    *(("layer", "codebook", 103, how) for how in ("at once", "xla")),
    ("not_built",),
    ("single_batches",),
    ("own_step",),
    ("loss",),
    ("metric",),
]
REFUSED = [
    *(
        ("refusal", kind)
        for kind in ("variance", "scattered", "branches", "returned")
    ),
    ("later",),
    ("rare",),
    ("evaluated",),
    ("own_batches",),
    ("said",),
    ("same_state_again",),
]


@pytest.fixture(scope="module")
def one_rank():
    return run_calls(rank_state, 1, EXACT, deadline=300)


@pytest.fixture(scope="module")
def two_ranks():
    return run_calls(rank_state, 2, EXACT, deadline=400)


@pytest.fixture(scope="module")
def three_ranks():
    return run_calls(rank_state, 3, [*EXACT, *REFUSED], deadline=500)


def _name(call):
    return "-".join(map(str, call))


@pytest.mark.parametrize("call", EXACT, ids=_name)
def test_it_is_what_one_process_keeps(call, one_rank, three_ranks):
    _require_alike(call, one_rank, three_ranks)


@pytest.mark.parametrize("call", EXACT, ids=_name)
def test_it_is_so_on_two_ranks(call, one_rank, two_ranks):
    _require_alike(call, one_rank, two_ranks)


def _require_alike(call, one_rank, several):
    (wanted,) = one_rank(*call)
    of_ranks = several(*call)
    for found in of_ranks:
        require_alike(found, wanted)
    for name in ("weights", "state"):
        if name in wanted:
            require_same_weights([found[name] for found in of_ranks])


@pytest.mark.parametrize(
    "kind, wanted",
    [
        ("variance", "one process assigns "),
        ("scattered", "by something that is no `assign`"),
        ("branches", "assigned in a branch or a loop"),
        ("returned", "has to come from the variable"),
    ],
)
def test_what_does_not_come_together_is_refused(kind, wanted, three_ranks):
    for text in three_ranks("refusal", kind):
        assert text.startswith("AutoError: "), text
        assert "The step of model 'sequential' " in text
        assert "(rank_state.py:" in text
        assert wanted in text
        assert "of layer 'keeps'" in text


def test_the_values_are_named(three_ranks):
    texts = three_ranks("refusal", "variance")
    assert "keeps 'sequential/keeps/variance' of layer 'keeps'" in texts[0]
    assert "parts of batch 1 leave in it" in texts[0]
    # The same on all ranks, as one of them is shown.
    assert len(set(texts)) == 1


def test_what_a_later_batch_does_not_leave_is_refused(three_ranks):
    for text in three_ranks("later"):
        assert "keeps 'sequential/late_ratio/kept'" in text
        assert "parts of batch 4 leave in it" in text


@pytest.mark.parametrize(
    "call, when",
    [
        ("rare", "After step 6"),
        ("evaluated", "After epoch 1"),
        ("own_batches", "After epoch 1"),
    ],
)
def test_what_ranks_keep_for_themselves_is_found(call, when, three_ranks):
    for text in three_ranks(call):
        assert text.startswith(f"ConsistencyError: {when} of model"), text
        assert "ranks have different values of 'sequential/" in text


def test_it_is_said_what_is_put_together(three_ranks):
    text, *others = three_ranks("said")
    assert "what the step of model 'sequential' (rank_state.py:" in text
    assert (
        ") keeps is that of the whole batch: 'sequential/keeps/kept' of layer "
        "'keeps' a mean over its rows"
    ) in text
    assert "WARNING" not in text
    assert others == ["", ""]


def test_a_comparison_leaves_no_trace(three_ranks):
    for before, after in three_ranks("same_state_again"):
        require_same_weights([before, after])
