"""Examples of docstrings and of pages run as they stand, on ranks."""

import pytest

from tests.documented import (
    ROOT,
    RUN_ELSEWHERE,
    blocks,
    docstring_examples,
    page_examples,
)
from tests.harness import run_ranks
from tests.keras import rank_documented

pytestmark = pytest.mark.timeout(200)

# Such jobs as two ranks cannot be.
ON_FOUR_RANKS = ("kr.ProcessSet", "kr.add_process_sets")
# These start the ranks of a job; tests/engines has Ray.
OF_JOBS = ("kr.run", "kr.ray.run")
EXAMPLES = {
    example.name: example
    for example in [*docstring_examples(), *page_examples()]
}


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_examples(tmp_path, num_ranks):
    """One job runs all of them: a new one needs no entry anywhere."""
    examples = [
        example
        for name, example in EXAMPLES.items()
        if name not in OF_JOBS and (name in ON_FOUR_RANKS) == (num_ranks == 4)
    ]
    assert examples
    failed = run_ranks(
        rank_documented.run,
        num_ranks,
        args=(examples, str(tmp_path)),
        deadline=150,
        # Where one rank fails alone, others wait for it.
        env={"KERAS_RING_STALL_SHUTDOWN_TIME": "15"},
    ).values
    texts = [
        f"--- {name} on rank {rank}\n{text}"
        for rank, by_name in enumerate(failed)
        for name, text in by_name.items()
    ]
    names = sorted({name for by_name in failed for name in by_name})
    assert not names, "\n".join(texts)


def test_run():
    names = {"loss": 0.5}
    exec("import keras_ring as kr", names)
    exec(EXAMPLES["kr.run"].code, names)
    assert names["results"] == [(0, 0.5), (1, 0.5)]


def test_nothing_is_left_out():
    """Examples are found, and what others run has a test there."""
    sources = "\n".join(
        path.read_text()
        for path in (ROOT / "keras_ring").rglob("*.py")
        if path.parent.name not in ("torch", "jax", "mxnet")
    )
    in_docstrings = [
        name for name in EXAMPLES if name.startswith(("kr.", "core."))
    ]
    assert len(in_docstrings) == sources.count("Example:\n")
    assert {*ON_FOUR_RANKS, *OF_JOBS, *rank_documented.ALSO} <= {*EXAMPLES}
    for page, test in RUN_ELSEWHERE.items():
        assert blocks((ROOT / page).read_text(), r"python(?: \w+)?")
        named = page.rpartition("/")[2]
        assert named in (ROOT / test).read_text(), page
