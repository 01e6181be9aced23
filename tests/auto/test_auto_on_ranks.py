"""A program of one process on ranks: weights, results, and what is refused."""

import pytest

from tests.auto import rank_auto
from tests.auto.alike import BOUND, require_alike, require_same_weights
from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)

EXACT = [
    ("arrays",),
    ("rows_of_one_rank",),
    ("masks_and_weights",),
    *(
        ("loss_of", reduction)
        for reduction in (
            "sum_over_batch_size",
            "sum",
            "mean_with_sample_weight",
        )
    ),
    ("loss_function",),
    # Of the last row two ranks have nothing, whose mean is no number.
    ("loss_function", 31),
    ("functions_of_layers",),
    ("images", "float32", 31),
    ("images", "float64", 32),
    ("images", "float32", 32, "eagerly"),
    ("class_weights",),
    ("own_step",),
    ("own_step", "Nested"),
    ("own_step_of_rows", "even"),
    ("own_step_of_rows", "uneven"),
    ("penalty_on_gradients",),
    ("optimizer_of_the_program",),
    ("connectionist", "float32"),
    ("shown_data",),
    ("two_optimizers",),
    ("endless",),
    ("py_dataset",),
    ("accumulated", "nothing"),
    ("accumulated", "a scale"),
    ("compiled_by_xla",),
    ("even_then_uneven",),
    ("results",),
    ("results_of_states",),
    ("results_of_batches",),
    ("metrics_of_two_models",),
    ("text",),
    ("padded_text", True),
    ("evaluated_between_steps",),
    ("read_again",),
    ("own_batches", "arrays"),
    ("own_batches", "dataset"),
]
# Of the files of other ranks than the first.
ENDS = [f".rank-{rank}" for rank in range(1, rank_auto.RANKS)]
COUPLED_BY = ("operation", "activation", "activity_regularizer")
# Of a step of the program's own: whether it is refused before it trains.
FEW_ROWS = {
    ("arrays", 32): True,
    ("batched", 32): True,
    ("unknown", 31): False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("auto"))


@pytest.fixture(scope="module")
def one_rank():
    calls = [*EXACT, ("drawn_by_keras",)]
    return run_calls(rank_auto, 1, calls, deadline=280)


@pytest.fixture(scope="module")
def three_ranks(folder):
    return run_calls(
        rank_auto,
        rank_auto.RANKS,
        [
            *EXACT,
            *(("own_step_that", how) for how in ("sum", "pairs", "chance")),
            ("files", folder),
            ("cached", folder),
            ("written", folder),
            ("image", folder),
            ("appended", folder),
            ("own_seed",),
            ("warmed_up",),
            ("own_batches_that_are_refused",),
            ("unlike_own_batches",),
            ("unlike_data",),
            ("changed_data",),
            ("refusals",),
            ("unequal_rows",),
            *(("coupled_rows", by) for by in COUPLED_BY),
            ("padded_text", False),
            *(("few_rows", *call) for call in FEW_ROWS),
            ("by_hand",),
            ("explained",),
            ("random_numbers",),
            ("drawn_by_keras",),
            ("chance_of_rank_0",),
        ],
        deadline=400,
    )


@pytest.mark.parametrize(
    "call", EXACT, ids=lambda call: "-".join(map(str, call))
)
def test_it_is_what_one_process_makes(call, one_rank, three_ranks):
    (wanted,) = one_rank(*call)
    of_ranks = three_ranks(*call)
    for found in of_ranks:
        bound = 1e-5 if "float32" in call else BOUND
        require_alike(found, wanted, bound=bound)
    if "weights" in wanted:
        require_same_weights([found["weights"] for found in of_ranks])


def test_a_step_that_is_no_mean_over_rows_is_refused(three_ranks):
    for how in ("sum", "pairs"):
        for text in three_ranks("own_step_that", how):
            assert text.startswith("AutoError: The step of model 'own'"), text
            assert "gradients of the whole: of 'own/dense/kernel'" in text


@pytest.mark.parametrize("call", FEW_ROWS, ids=lambda call: call[0])
def test_a_step_of_ones_own_needs_a_row_on_each_rank(call, three_ranks):
    kind, rows = call
    wanted = {31: "has 1 row, fewer", 32: "has 2 rows, fewer"}[rows]
    for text, steps in three_ranks("few_rows", *call):
        assert text.startswith("AutoError: rank_auto.py:"), text
        assert f"{wanted} than there are ranks (3)." in text
        assert "Model 'own' has a `train_step`" in text
        assert ("32 samples in batches of 10" in text) == (kind == "arrays")
        assert (steps == 0) == FEW_ROWS[call]


@pytest.mark.parametrize("by", COUPLED_BY)
def test_what_goes_across_rows_is_refused(by, three_ranks):
    for text in three_ranks("coupled_rows", by):
        assert text.startswith("AutoError: The step of model"), text


def test_text_whose_padding_counts_is_refused(three_ranks):
    for text in three_ranks("padded_text", False):
        assert text.startswith("AutoError: The step of model"), text
        assert "`output_sequence_length`" in text


def test_a_step_that_cannot_be_checked_is_said_to_be(three_ranks):
    first, *others = three_ranks("own_step_that", "chance")
    assert "WARNING: the step of model 'own' (rank_auto.py:" in first
    assert ") is not checked, for it draws random numbers" in first
    assert "random numbers" in first
    assert others == ["", ""]


def test_rank_0_writes_what_is_one_file(three_ranks, folder):
    saved, same, own, last = zip(*three_ranks("files", folder), strict=True)
    # Two epochs of the callback, and `save`.
    assert saved == ([0, 0, 0], [], [])
    assert all(same)
    assert all(own)
    assert all(last)


def test_each_rank_caches_in_a_file_of_its_own(three_ranks, folder):
    losses, names = only(three_ranks("cached", folder))
    assert len(losses) == 2
    assert names == [f"cached{end}.index" for end in ("", *ENDS)]


def test_what_a_program_writes_itself_is_told_with_its_line(
    three_ranks, folder
):
    first, *others = three_ranks("written", folder)
    assert "rank_auto.py:" in first
    assert "notes.txt' on each of the 3 ranks" in first
    assert others == ["", ""]


def test_rank_0_writes_an_image(three_ranks, folder):
    saved, same = zip(*three_ranks("image", folder), strict=True)
    assert saved == ([0], [], [])
    assert all(same)


def test_what_a_program_appends_is_refused_but_for_logs(three_ranks, folder):
    found = three_ranks("appended", folder)
    for rank, (text, exists, said) in enumerate(found):
        assert text.startswith("AutoError: rank_auto.py:"), text
        assert "appends to" in text
        assert "a.csv' on each of the 3 ranks" in text
        assert not exists
        assert ("a.log' on each of the 3 ranks. Write it on one" in said) == (
            rank == 0
        )


def test_a_program_without_a_seed_draws_the_same_on_all_ranks(three_ranks):
    assert isinstance(only(three_ranks("own_seed")), list)


def test_the_rate_is_reached_in_the_epochs_of_the_warmup(three_ranks):
    first, *others = three_ranks("warmed_up")
    rates, text = first
    assert "learning rate of 'sgd': 0.01 -> 0.0173205, reached in 2" in text
    assert "each rank has batches of 10 of its own" in text
    assert 0.01 < rates[0] < rates[1]
    assert rates[1:] == pytest.approx([0.01 * 3**0.5] * 2, rel=1e-6)
    assert [each[0] for each in others] == [rates] * 2


def test_batches_of_ranks_must_have_a_number_and_a_rate(three_ranks):
    for unknown, schedule in three_ranks("own_batches_that_are_refused"):
        assert unknown.startswith("AutoError: rank_auto.py:"), unknown
        assert "number of batches is not known" in unknown
        assert "is a schedule" in schedule


def test_data_that_ranks_do_not_share_are_refused(three_ranks):
    for text in three_ranks("unlike_own_batches"):
        assert text.startswith("ConsistencyError: "), text
    for text in three_ranks("unlike_data"):
        assert text.startswith("ConsistencyError: Of "), text
        assert "default_rng()" in text
    first, *_ = three_ranks("changed_data")
    assert "change them in different ways" in first


def test_what_cannot_be_exact_is_refused_with_its_line(three_ranks):
    for texts in three_ranks("refusals"):
        for text in texts.values():
            assert text.startswith("AutoError: rank_auto.py:"), text
        assert "layer 'gru' is `stateful`" in texts["state"]
        assert "tf.distribute.MirroredStrategy" in texts["strategy"]
        assert "input()" in texts["input"]
        assert "kr.DistributedGradientTape" in texts["loop"]


def test_tensors_with_other_rows_are_refused(three_ranks):
    for texts in three_ranks("unequal_rows"):
        for text in texts:
            assert "have different first dimensions" in text


def test_what_a_program_does_by_hand_is_left_alone(three_ranks):
    first, *_ = three_ranks("by_hand")
    assert "it is left alone" in first
    assert "optimizer" not in first.replace("its optimizer", "")


def test_the_explanation_trains_nothing(three_ranks):
    first, *others = three_ranks("explained")
    assert "fit: 82 samples, about 27 each; batch 10 = 3 x 3 + 1" in first
    assert "files of CSVLogger: written by rank 0" in first
    assert "nothing is trained" in first
    assert others == ["", ""]


def test_ranks_drop_different_units_of_equal_weights(three_ranks):
    drawn, weights = zip(*three_ranks("random_numbers"), strict=True)
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[1] != drawn[2]).any()
    require_same_weights(weights)


def test_ranks_draw_the_same_between_steps_alone(three_ranks, one_rank):
    ((wanted, _),) = one_rank("drawn_by_keras")
    found, seen = zip(*three_ranks("drawn_by_keras"), strict=True)
    for each in found:
        require_alike(each, wanted)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        assert (seen[one] != seen[other]).all()


def test_what_each_rank_evaluates_itself_is_said_by_rank_0(three_ranks):
    assert len(only(three_ranks("chance_of_rank_0"))) == 2
