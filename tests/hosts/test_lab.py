"""The hosts that the other tests here have."""

import subprocess

import pytest

from tests.lab import lab


@pytest.mark.long("hosts")
@pytest.mark.timeout(150, func_only=True)
def test_the_lab_does_what_its_page_says():
    if why := lab.missing():
        pytest.skip(why)
    with lab.no_lab():
        tried = subprocess.run(
            [str(lab.ROOT / "tests" / "lab" / "selftest")],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert tried.returncode == 0, tried.stdout + tried.stderr
