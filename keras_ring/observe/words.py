"""Names of causes, activities and ranks, for all that describe a job."""

from collections.abc import Collection, Sequence

CAUSES = {
    "data": "its input pipeline",
    "compute": "its computation",
    "checkpoint": "its checkpoints",
    "link": "the links between ranks",
    "turns": "their computation, which varies from step to step",
}
"""Causes of a slow job or a late rank, and their names."""

ACTIVITIES = ("compute", "data", "checkpoint", "evaluate", "predict")
"""Activities of a rank, by the value of the counter `activity`."""

_DOING = {
    "compute": "computes",
    "data": "waits for its input pipeline",
    "checkpoint": "saves a checkpoint",
    "evaluate": "evaluates",
    "predict": "predicts",
    "stopped": "has been stopped by a signal",
}
_DOING_TOGETHER = {
    "compute": "compute",
    "data": "wait for their input pipelines",
    "checkpoint": "save a checkpoint",
    "evaluate": "evaluate",
    "predict": "predict",
    "stopped": "have been stopped by a signal",
}
_MAX_RUNS = 6


def doing(activity: str, ranks: Collection[int]) -> str:
    """Returns an activity of ranks, as the end of "..., which ..."."""
    return (_DOING if len(ranks) == 1 else _DOING_TOGETHER)[activity]


def rank_runs(ranks: Collection[int]) -> list[tuple[int, int]]:
    """Returns runs of consecutive ranks, each as its lowest and highest."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return runs


def rank_names(ranks: Collection[int]) -> str:
    """Returns ranks in words, such as `"ranks 0, 2-7 and 9"`."""
    runs = rank_runs(ranks)
    texts = [text for low, high in runs for text in _run(low, high)]
    if len(texts) > _MAX_RUNS:
        shown = sum(high - low + 1 for low, high in runs[: _MAX_RUNS - 1])
        texts = [
            text
            for low, high in runs[: _MAX_RUNS - 1]
            for text in _run(low, high)
        ]
        texts.append(f"{len(ranks) - shown} more")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(texts)}"


def _run(low: int, high: int) -> list[str]:
    if high - low < 2:
        return [str(rank) for rank in range(low, high + 1)]
    return [f"{low}-{high}"]


def listed(texts: Sequence[str]) -> str:
    """Returns texts as a list in a sentence, such as `"a, b and c"`."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def sentence(text: str) -> str:
    """Returns a text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."
