"""Examples of pages about PyTorch and of docstrings run as they stand."""

from tests.documented import ROOT, blocks, torch_examples
from tests.harness import run_ranks
from tests.pytorch import rank_documented

PAGES = ("docs/pytorch.md", "docs/api/torch.md")


def test_examples(tmp_path):
    examples = [(each.name, each.code) for each in torch_examples()]
    of_pages = [
        (page, code)
        for page in PAGES
        for code in blocks((ROOT / page).read_text(), "python")
    ]
    sources = [p.read_text() for p in (ROOT / "keras_ring/torch").glob("*.py")]
    # Those of the methods of the optimizer are of no public name.
    of_methods = 2
    written = sum(source.count("Example:\n") for source in sources)
    assert len(examples) == written - of_methods
    assert len(of_pages) == 3
    assert {*rank_documented.ALSO} <= {name for name, _ in examples}
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
