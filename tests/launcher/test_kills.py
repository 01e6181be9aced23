"""Some random ends of jobs; more: `python -m tests.launcher.kills`."""

import pytest

from tests import tiers
from tests.launcher import kills

COUNT = tiers.amount(30 if tiers.pulled("launcher-kills") else 11, 300)


@pytest.mark.longer("launcher-kills")
@pytest.mark.timeout(60 + 6 * COUNT)
def test_nothing_is_left_of_jobs_that_end_at_random():
    problems = {
        str(kill): found
        for kill in kills.draw(seed=tiers.seed(2), count=COUNT)
        if (found := kills.run(kill))
    }
    assert not problems
