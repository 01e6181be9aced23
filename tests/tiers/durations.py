"""How long tests take: `durations.json`, for estimates, draws and the order.

    python -m tests.tiers.durations KIND FILE.xml ...

takes the times of KIND from reports in JUnit's format, as `pytest --junitxml`
and `ctest --output-junit` write them: `files` are files of pytest, `keras2`
and `pytorch` those of environments of their own, `asan` and `tsan` tests of
ctest. Tests that the reports do not have keep their times. `lanes` are seconds
of whole lanes, which the gate takes with `--record`. Machines differ; what
counts is which test takes longer than another.
"""

import argparse
import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from tests.tiers.environments import ENVIRONMENTS

FILE = Path(__file__).with_name("durations.json")
KINDS = ("files", *ENVIRONMENTS, "asan", "tsan", "lanes")


def read(kind: str) -> dict[str, float]:
    """Returns the seconds of each test of a kind."""
    return json.loads(FILE.read_text()).get(kind, {})


def update(kind: str, seconds: dict[str, float]) -> None:
    """Takes over the seconds of these tests."""
    table = json.loads(FILE.read_text()) if FILE.exists() else {}
    of_kind = {**table.get(kind, {}), **seconds}
    table[kind] = {
        name: round(value, 1) for name, value in sorted(of_kind.items())
    }
    FILE.write_text(json.dumps(table, indent=1) + "\n")


def of_report(text: str) -> dict[str, float]:
    """Returns the seconds of a report's files, or tests if it has no files."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = case.get("name", "")
        classes = case.get("classname", "")
        if not classes:
            continue  # a file that could not be collected
        if classes.startswith("tests."):
            if (file := _file_of(classes)) is None:
                continue
            name = file
        found[name] += float(case.get("time", 0))
    return dict(found)


def _file_of(names: str) -> str | None:
    """Returns the file of "tests.folder.test_file.TestClass", or None."""
    parts = names.split(".")[1:]
    while parts:
        file = "/".join(parts) + ".py"
        if (FILE.parents[1] / file).is_file():
            return file
        parts.pop()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("reports", nargs="+", type=Path)
    arguments = parser.parse_args()
    for report in arguments.reports:
        update(arguments.kind, of_report(report.read_text()))


if __name__ == "__main__":
    main()
