"""Examples of docs/pytorch.md and of docstrings run as they stand."""

from tests.documented import ROOT, blocks, torch_examples
from tests.harness import run_ranks
from tests.torch import rank_documented


def test_examples(tmp_path):
    page = (ROOT / "docs/pytorch.md").read_text()
    examples = [(each.name, each.code) for each in torch_examples()]
    of_page = [("page", code) for code in blocks(page, "python")]
    sources = [p.read_text() for p in (ROOT / "keras_ring/torch").glob("*.py")]
    # Those of the methods of the optimizer are of no public name.
    of_methods = 2
    written = sum(source.count("Example:\n") for source in sources)
    assert len(examples) == written - of_methods
    assert of_page
    assert {*rank_documented.ALSO} <= {name for name, _ in examples}
    failed = run_ranks(
        rank_documented.run,
        2,
        args=([*examples, *of_page], str(tmp_path)),
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
