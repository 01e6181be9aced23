"""Examples of pages about JAX and of docstrings run as they stand."""

from tests.documented import ROOT, blocks, jax_examples
from tests.harness import run_ranks
from tests.with_jax import rank_documented

PAGES = ("docs/jax.md", "docs/api/jax.md")


def test_examples(tmp_path):
    examples = [(each.name, each.code) for each in jax_examples()]
    of_pages = [
        (page, code)
        for page in PAGES
        for code in blocks((ROOT / page).read_text(), "python")
    ]
    assert len(examples) == 7
    assert len(of_pages) == 3
    assert {*rank_documented.THEN} <= {name for name, _ in examples}
    failed = run_ranks(
        rank_documented.run,
        2,
        args=([*examples, *of_pages], str(tmp_path)),
        fresh=True,
        deadline=100,
        env={"KERAS_RING_STALL_SHUTDOWN_TIME": "15"},
    ).values
    texts = [
        f"--- {name} on rank {rank}\n{text}"
        for rank, by_name in enumerate(failed)
        for name, text in by_name.items()
    ]
    assert not texts, "\n".join(texts)
