"""Modules of tests have names of their own, where folders are no packages."""

import collections
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_modules_have_one_name():
    # Folders with settings of their own run by themselves.
    own = {path.parent for path in TESTS.glob("*/pytest.ini")}
    by_name = collections.defaultdict(list)
    for path in TESTS.rglob("test_*.py"):
        is_of_package = (path.parent / "__init__.py").exists()
        if not is_of_package and not own & set(path.parents):
            by_name[path.name].append(str(path.relative_to(TESTS)))
    assert [paths for paths in by_name.values() if len(paths) > 1] == []
