"""Scripts of one process on ranks: each comes to what the table expects."""

import pytest

from tests import tiers
from tests.auto import compare, starting
from tests.auto.expected import SCRIPTS


def _parameters():
    for script in SCRIPTS.values():
        marks = [] if script.gate else [pytest.mark.long("auto")]
        if not script.runs:
            marks.append(pytest.mark.skip(f"needs {script.needs}"))
        yield pytest.param(script, id=script.name, marks=marks)


def test_the_table_has_all_scripts():
    paths = starting.SCRIPTS.glob("*.py")
    assert SCRIPTS.keys() == {path.stem for path in paths}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", _parameters())
def test_script(script, tmp_path):
    path = starting.SCRIPTS / f"{script.name}.py"
    wide = not script.random
    one = starting.start(path, tmp_path / "one", float64=wide)
    for size in (2, 3) if tiers.pulled("auto") else (2,):
        folder = tmp_path / str(size)
        many = starting.start(path, folder, size, float64=wide)
        verdict = compare.judge(
            one,
            many,
            script.random,
            script.weights_bound,
            script.values_bound,
            script.calls_of_rank_0,
        )
        assert script.fits(verdict.word, verdict.reason), verdict
        if verdict.word != compare.REFUSED:
            assert verdict.shared == script.shared, verdict
