"""Random programs of collectives, drawn by hypothesis from one seed.

A program is plain data: how its calls are submitted, what they are, and which
ranks join instead of making them. The tensors in it are seeds.
test_programs.py draws, rank_programs.py runs.
"""

import hypothesis
from hypothesis import strategies as st

from tests.multiprocess.collectives import collective_model as model

# How the calls of a program come about. All but the first hand them in at once,
# each rank in an order of its own.
MODES = ["eager"] * 4 + ["threads"] * 8 + ["function"] * 2 + ["graph"]

_SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7])
# Powers of two change no mantissa, the others do.
_FACTORS = st.sampled_from([1.0, 1.0, 1.0, 0.5, -2.0, 0.1, 3.0])
_ROWS = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 9, 17])


@st.composite
def _inner_shape(draw):
    shape = draw(st.lists(_SIZES, max_size=2))
    # Now and then one that takes several chunks.
    return tuple(shape) if draw(st.integers(0, 15)) else (2311, *shape[:1])


@st.composite
def _reduction(draw, size, grouped, scatter):
    count = draw(st.integers(1, 4)) if grouped else 1
    reduce_ops = model.REDUCE_OPS if scatter else [*model.REDUCE_OPS, "Adasum"]
    op = draw(st.sampled_from(reduce_ops))
    prescale, postscale = draw(_FACTORS), draw(_FACTORS)
    scaled = op in ("Average", "Sum", "Adasum") and (prescale, postscale) != (
        1.0,
        1.0,
    )
    floats = scaled or op == "Adasum"
    dtypes = model.FLOATS if floats else model.REDUCIBLE
    members = []
    for _ in range(count):
        shape = draw(_inner_shape())
        if scatter or draw(st.booleans()):
            shape = (draw(_ROWS), *shape)
        members.append((draw(st.sampled_from(dtypes)), shape))
    return {
        "members": members,
        "op": op,
        "prescale": prescale if scaled else 1.0,
        "postscale": postscale if scaled else 1.0,
    }


@st.composite
def _gather(draw, size, grouped):
    members = range(draw(st.integers(1, 4)) if grouped else 1)
    return {
        "members": [
            (draw(st.sampled_from(model.MOVABLE)), draw(_inner_shape()))
            for _ in members
        ],
        "rows": [[draw(_ROWS) for _ in range(size)] for _ in members],
    }


@st.composite
def _broadcast(draw, size):
    return {
        "members": [
            (draw(st.sampled_from(model.MOVABLE)), draw(_inner_shape()))
        ],
        "root": draw(st.integers(0, size - 1)),
    }


@st.composite
def _alltoall(draw, size):
    given = draw(st.booleans())
    splits = [
        [draw(_ROWS) for _ in range(size)] if given else [draw(_ROWS)] * size
        for _ in range(size)
    ]
    return {
        "members": [
            (draw(st.sampled_from(model.MOVABLE)), draw(_inner_shape()))
        ],
        "splits": splits,
        "given": given,
    }


def process_sets(size):
    """The sets of a job, as users may name their ranks; the first is the job.

    They overlap, one has a single rank, and one is not in order.
    """
    sets = [list(range(size)), [size - 1], [size - 1, 0], list(range(1, size))]
    distinct = {frozenset(ranks): ranks for ranks in reversed(sets)}
    return [sets[0]] + [
        ranks for ranks in distinct.values() if len(ranks) < size
    ]


@st.composite
def _call(draw, job_size):
    # Half of them on all ranks.
    sets = process_sets(job_size)
    number = draw(st.sampled_from([0] * len(sets) + list(range(len(sets)))))
    size = len(sets[number])
    kind, strategy = draw(
        st.sampled_from(
            [
                ("allreduce", _reduction(size, False, False)),
                ("grouped_allreduce", _reduction(size, True, False)),
                ("reducescatter", _reduction(size, False, True)),
                ("grouped_reducescatter", _reduction(size, True, True)),
                ("allgather", _gather(size, False)),
                ("grouped_allgather", _gather(size, True)),
                ("broadcast", _broadcast(size)),
                ("alltoall", _alltoall(size)),
            ]
        )
    )
    return {
        "kind": kind,
        "set": number,
        "seed": draw(st.integers(0, 2**31)),
        **draw(strategy),
    }


def _needs(call, rank):
    """Whether a call cannot be made without a rank."""
    if call["set"] != 0:
        return True
    if call["kind"] == "broadcast":
        return call["root"] == rank
    return call["kind"] not in (
        "allreduce",
        "grouped_allreduce",
        "allgather",
        "grouped_allgather",
    )


@st.composite
def program(draw, size):
    """A program for a job of `size` ranks."""
    calls = draw(st.lists(_call(size), min_size=1, max_size=6))
    # Now and then some join at once, and the others when they are through.
    joined = []
    if not draw(st.integers(0, 3)):
        joined = draw(
            st.lists(
                st.integers(0, size - 1),
                min_size=1,
                max_size=size - 1,
                unique=True,
            )
        )
        calls = [
            call
            for call in calls
            if not any(_needs(call, rank) for rank in joined)
        ]
    # Few names, so that what the ranks remember of a name is often wrong.
    names = draw(st.permutations([f"name{i}" for i in range(8)]))
    for call, name in zip(calls, names, strict=False):
        call["name"] = name
    return {
        "mode": draw(st.sampled_from(MODES)),
        "order_seed": draw(st.integers(0, 2**31)),
        "joined": joined,
        "calls": calls,
    }


def draw_programs(size, count, seed):
    """Returns `count` programs, the same for the same seed."""
    drawn = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(program(size))
    def collect(one):
        drawn.append(one)

    collect()
    return drawn
