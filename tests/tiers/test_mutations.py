"""The faults that are put into the code are still of this code."""

import pytest

from tests.tiers.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.what)
def test_a_mutation_fits(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.right) == 1
    assert mutation.right != mutation.wrong
    for test in mutation.tests:
        name = test.partition("::")[0]
        found = (
            [ROOT / name]
            if "/" in name
            else list((ROOT / "tests/cpp").glob(f"*/{name}.cc"))
        )
        assert len(found) == 1 and found[0].exists(), test
