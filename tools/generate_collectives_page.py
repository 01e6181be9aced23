"""Writes docs/collectives.md from the tables that the tests run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from keras_ring.core import native
from tests.multiprocess.collectives import collective_table as table

HEADER = """# Collectives

Generated from `tests/multiprocess/collectives/collective_table.py` and
`csrc/base/dtype_table.h` by `make docs`; do not edit. The tests check every
cell: what works by its values, what does not by its error.

Ranks are matched by `name`: all must make the same calls, in any order. What
follows holds for the ranks of a job or of a process set; `n` is their number.

| call | shapes | result | dtypes |
|---|---|---|---|
"""

# Call, shapes, result, whether it reduces.
ROWS = [
    ("`allreduce(tensor, op)`", "equal", "as the tensor", True),
    ("`grouped_allreduce(tensors, op)`", "equal", "a list", True),
    (
        "`reducescatter(tensor, op)`",
        "equal, at least one dimension",
        "this rank's rows; the first `rows % n` ranks get one more",
        True,
    ),
    (
        "`grouped_reducescatter(tensors, op)`",
        "equal, at least one dimension",
        "a list",
        True,
    ),
    (
        "`allgather(tensor)`",
        "at least one dimension; any number of rows per rank",
        "the ranks' rows, by rank",
        False,
    ),
    (
        "`grouped_allgather(tensors)`",
        "as `allgather`, each tensor by itself",
        "a list",
        False,
    ),
    ("`broadcast(tensor, root_rank)`", "equal", "the root's tensor", False),
    (
        "`broadcast_(variables, root_rank)`",
        "equal",
        "the variables, with the root's values",
        False,
    ),
    (
        "`alltoall(tensor, splits=None)`",
        "at least one dimension; any number of rows per rank",
        "the rows that each rank had for this one; with `splits`, also how "
        "many came from each",
        False,
    ),
]

MIDDLE = """
*Moved*: {moved}.
*Reduced*: all of these but {not_reduced}.

A group is one atomic operation: its tensors are agreed on, run and finished
together, and may have different dtypes. Tensors without elements, and lists
without tensors, are fine.

- `Average` of integers is the exact sum, divided and rounded down, as in NumPy.
- float16 and bfloat16 are summed in float32 and rounded once.
- With `compression=kr.Compression.fp16` or `bf16`, float32 and float64 travel
  as that: half the bytes, or a quarter. Each rank's values times the prescale
  factor are rounded, summed in float32, and the result is rounded once more.
  float16 keeps 11 significant bits and makes infinities of what is above
  65504; bfloat16 keeps 8, and the range of float32. Others are left as they
  are. All ranks must ask for the same. Between hosts that have several ranks,
  the sum of each host is rounded as well. (In a ring, sums on their way are
  float32: so many ranks move 3/4 of float32's bytes.)
- On one host, and between up to 32 ranks on as many hosts, sums are made in
  the order of the ranks. Where hosts have several ranks, those of each are
  summed in their order, then the hosts, in the order of their lowest ranks.
  Beyond 32 ranks on as many hosts there is a ring, and an order that depends on
  the place in the tensor. What all ranks get has the same bits in any case;
  without a ring, in every run.
- `Adasum` takes each tensor, of a floating dtype, as a vector. Of two it makes
  `(1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b`, where a factor with a
  denominator of zero is 1: the sum where they are at right angles, the mean
  where they are equal. Of more, ranks 0 and 1 make one, 2 and 3, and so on,
  then the first two of these, until one is left; where their number is odd, the
  last is carried up as it is. So there may be any number of ranks: of five it
  is `Adasum(Adasum(Adasum(0, 1), Adasum(2, 3)), 4)`. Dot products are of whole
  tensors, also in a group, and summed in float64; a tensor with an infinity or
  a NaN comes out without a finite number. Factors and compression work as in a
  sum. It moves as many bytes as a sum; in a ring `n / 2` times the tensor,
  where a sum moves it twice at most. It takes the memory of a
  tensor, or of 16 MiB of small ones, twice, and four times for float16 and
  bfloat16. `reducescatter` and `tf.IndexedSlices` have none.
- `alltoall` without splits needs a number of rows that the ranks divide evenly.
  Splits that are negative, too few, or do not add up to the rank's rows are an
  `InvalidArgumentError` on all ranks that names the rank and its splits.
- Every rank hears of the splits of all ranks, which are the square of their
  number: of 4,096 ranks 16 to 67 MB at each call, and an `InvalidArgumentError`
  on all ranks where they are longer than a message may be (64 MiB). Equal rows,
  without splits, cost nothing of the kind.

`rank_op()`, `size_op()`, `local_rank_op()`, `local_size_op()` and
`process_set_included_op(id)` are int32 scalars that a graph finds out when it
runs.

## Process sets

Every call takes `process_set`, a `kr.ProcessSet` of ranks that
`kr.init(process_sets=[...])` or `kr.add_process_set` has added; so do the
optimizer, the tape, `SyncBatchNormalization`, the callbacks and what shares
objects and variables. The gradient of a collective is one on the same set.

- Only its members call it. For others it is an `InvalidArgumentError` on that
  rank, which names the rank and the set.
- "By rank" means the order of the members' ranks in the job, in whatever order
  they were given. `root_rank` is a rank of the job, and a member.
- Sets may overlap, and wait for their own members only. A name in one set has
  nothing to do with that name in another.
- Sets are added and removed by all ranks of the job together.

## Ranks without data

`join()` says that this rank has no more data, and waits until all ranks have
said so. It returns the last one that did. Meanwhile the others go on:

| collective | with ranks that have joined |
|---|---|
| `allreduce`, `grouped_allreduce` | they bring nothing: `Average`, of \
integers too, divides by the number of those that do; extrema and products are \
of these; in an `Adasum` they are vectors of zeros |
| `tf.IndexedSlices` | the same |
| `allgather`, `grouped_allgather` | they bring no rows |
| `broadcast`, `broadcast_` | goes on; from one that has joined, an error |
| `barrier` | they count as come |
| `reducescatter`, `grouped_reducescatter` | an error: rows would be lost |
| `alltoall` | they bring no rows; rows for them are an error |

Errors are a `FailedPreconditionError` on all ranks that asked. A rank joins
once all that it asked for before is agreed on, and can ask for nothing until
`join` returns; then all may join again, as after each epoch. What it asks of a
process set is apart from that: ranks join the job, and collectives on a set
still need all of its members. An example is in
[keras_guide.md](keras_guide.md#data).

## Modes

"""

GRADIENTS = """
What is refused in functions with `jit_compile=True` is refused when they are
traced: XLA compiles for fixed shapes, and keeps no order of what has no result.
`rank_op` is refused by TensorFlow, when the function runs.

A name may be used again once its last use has ended. In a `tf.function`, whose
own collectives are in flight together, a name that is given again gets a
number, and loops, branches and calls of other functions come in the order of
the program, as do the turns of a loop. So a function may be called twice, and
a branch may have the names of what is around it. Functions with
`jit_compile=True` number the names of their loops and branches, too; if the
ranks' functions differ, what they have in a loop must not be independent of
what is around it, or they may wait for each other, which is an error.

Threads that make collectives at the same time need names of their own, and so
do functions that run on them: those of one name follow each other in an order
that may differ between ranks. What is in flight twice on one rank is an error;
what is not, nobody can tell apart.

A `tf.while_loop` of a TensorFlow 1
graph runs up to `parallel_iterations` of them at once, and its gradient as
many: give it `parallel_iterations=1` if there is a collective in it.

## Gradients

What is differentiated is the sum of the ranks' losses. *w* is the gradient of
the result that each rank has; all sums are over the ranks. Integers and
booleans have no gradient, and those of others in their group are not disturbed.

| collective | gradient of this rank's tensor |
|---|---|
| `Sum`, `Average` | sum of *w*, times the factors; over `n` for `Average` |
| `Min`, `Max` | sum of *w* where this rank holds the extremum, else zero; \
ranks that share it get equal parts |
| `Product` | sum of *w*, times the product of the other ranks' values; made \
without a division, so right with zeros |
| `Adasum` | its derivative in the direction of the sum of *w*, times the \
factors. The factors of the vectors depend on the vectors, so this is not an \
Adasum of the *w*; and it takes the vectors of all ranks at once: `n` times \
the memory of the tensor |
| `reducescatter` | the same, with the ranks' *w* one below the other for the \
sum of *w* |
| `allgather` | this rank's rows of the sum of *w* |
| `broadcast` | on the root, sum of *w*; zeros elsewhere |
| `alltoall` | an alltoall of *w* with the received splits |

Each is computed plainly, by a persistent tape used twice, within a
`tf.custom_gradient`, in a `tf.cond` and in a `tf.while_loop`:

"""


def _matrix(head: str, rows: dict[str, dict[str, str]]) -> str:
    modes = next(iter(rows.values()))
    heads = [head, *(table.MODES[mode] for mode in modes), "on a process set"]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for name, outcomes in rows.items():
        refused = name.strip("`") in table.NOT_ON_A_SET
        on_a_set = table.NO if refused else table.ON_A_SET
        cells = [name, *outcomes.values(), on_a_set]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Returns the text of the page."""
    dtypes = native.core().dtypes()
    text = HEADER
    for call, shapes, result, reduces in ROWS:
        kind = "reduced" if reduces else "moved"
        text += f"| {call} | {shapes} | {result} | {kind} |\n"
    text += MIDDLE.format(
        moved=", ".join(name for name, _ in dtypes),
        not_reduced=", ".join(name for name, reduced in dtypes if not reduced),
    )
    text += _matrix(
        "collective",
        {f"`{name}`": modes for name, modes in table.FORWARD.items()},
    )
    text += GRADIENTS
    text += _matrix(
        "gradient of",
        {
            variant: {
                mode: table.gradient_outcome(variant, mode)
                for mode in table.GRADIENT_MODES
            }
            for variant in table.GRADIENTS
        },
    )
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
