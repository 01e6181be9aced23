"""Some random ends of jobs; more: `python -m tests.launcher.kills`."""

import pytest

from tests.launcher import kills


@pytest.mark.timeout(180)
def test_nothing_is_left_of_jobs_that_end_at_random():
    problems = {
        str(kill): found
        for kill in kills.draw(seed=2, count=30)
        if (found := kills.run(kill))
    }
    assert not problems
