"""The state of a model that ranks share, and what is each rank's own."""

import pytest
import rank_state2

from tests.keras2.lane import run_calls

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("state"))
    calls = [("parts", directory, kind) for kind in rank_state2.KINDS]
    result = run_calls(rank_state2, 2, calls)
    return lambda kind: result("parts", directory, kind)


@pytest.mark.parametrize("kind", rank_state2.KINDS)
def test_a_model_of_parts(two_ranks, kind):
    """It has two optimizers and no `call`."""
    first, second = two_ranks(kind)
    # Moments, for kernel and bias.
    count = 4
    for result in (first, second):
        assert result["step"] == 1
        for key in ("restored", "goes_on", "built"):
            assert result[key], key
        assert result["num_slots"] == count
        assert result["iterations"] == {"optimizer": 0, "one": 4, "two": 4}
    # Weights that are local, what the optimizer remembers of them, and seeds.
    assert len(first["owned"]) == 2 + count + 1
    for mine, other in zip(first["owned"], second["owned"], strict=True):
        assert mine != other
    # The key, and nothing else of the generator.
    seed, other_seed = first["owned"][-1], second["owned"][-1]
    assert seed[:-1] == other_seed[:-1]
    assert other_seed[-1] == seed[-1] ^ 0x514E28B7
    assert first["moved"] != second["moved"]
