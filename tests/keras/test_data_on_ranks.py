"""Data on ranks that are processes: what differs, and what does not."""

import pytest
import rank_data

from keras_ring.keras.agreement import same_batch
from tests.harness import only, run_calls, run_ranks

pytestmark = pytest.mark.timeout(900)

UNEVEN_FILES = (7, 1, 5, 0, 6, 3)
SAME_BATCH = (
    *("whole", "split", "constant", "eager", "several steps"),
    *rank_data.SHARDED,
)
FILES = {
    "pad": (("uneven", "pad"),),
    "drop": (("uneven", "drop"),),
    "shuffled": (("shuffle", True), ("seed", 3)),
    "counted": (("lengths", UNEVEN_FILES),),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        name: str(tmp_path_factory.mktemp(name.replace(" ", "_")))
        for name in ("texts", "one", "caches", *FILES)
    }


@pytest.fixture(scope="module")
def two_ranks(folders):
    return run_calls(
        rank_data,
        2,
        [
            ("different_data", folders["texts"]),
            ("cached_in_files", folders["caches"]),
            *(("same_batch", kind) for kind in SAME_BATCH),
            *(
                ("many_files", folders[name], UNEVEN_FILES, options)
                for name, options in FILES.items()
            ),
            ("many_files", folders["one"], (9,), ()),
        ],
        deadline=280,
    )


def test_data_in_another_order_are_an_error_on_all_ranks(two_ranks, folders):
    results = only(two_ranks("different_data", folders["texts"]))
    for name in ("shuffle", "shuffle inside", "list_files"):
        assert "no seed was given" in results[name], name
        assert "Pass seed=" in results[name]
    assert "not deterministic" in results["any order"]
    for name, words in {
        "directory": "the seed of ShuffleDataset",
        "permutation": "array 0 is not the same on rank 0 and on rank 1",
        "labels": "array 1 is not the same",
        "names": "the contents of TensorSliceDataset",
        "seed": "the seed of ShuffleDataset",
        "twice": "the part that ShardDataset takes",
        "length": "of shape (11, 2)",
    }.items():
        assert words in results[name], (name, results[name])
        assert "seed=" in results[name]
        assert "check=False" in results[name]


def test_data_in_one_order_are_split(two_ranks, folders):
    results = only(two_ranks("different_data", folders["texts"]))
    for name in (
        "shuffle, seed",
        "list_files, seed",
        "directory, seed",
        "permutation, seed",
        "rounding",
    ):
        assert results[name] == "right", (name, results[name])
    for name in (
        "shuffle each time alike",
        "shuffle inside, seed",
        "directory, in order",
    ):
        assert results[name] == "right, again", (name, results[name])
    assert results["check=False"] == 4


@pytest.mark.parametrize("kind", SAME_BATCH)
def test_the_same_batch_on_all_ranks(two_ranks, kind):
    first, second = two_ranks("same_batch", kind)
    assert first["weights"] == second["weights"]
    assert not second["lines"]
    if kind in ("split", "constant", *rank_data.SHARDED):
        assert not first["lines"]
    else:
        (line,) = first["lines"]
        assert "2 of 2 ranks got the same batch (ranks 0, 1)" in line
        assert "kr.data.shard" in line
    line = "keras_ring: 2 ranks, a global batch of 2 x 10 = 20"
    assert first["printed"] == ([] if kind == "eager" else [line])
    assert not second["printed"]
    assert not second["shuffled"]
    if kind in ("sharded", "sharded, seeds of ranks"):
        (line,) = first["shuffled"]
        unseeded = "seed of ShuffleDataset (no seed was given)" in line
        assert unseeded == (kind == "sharded")
        assert unseeded or "seeds, files or contents differ" in line
    else:
        assert not first["shuffled"]
    batches = 4 if kind in ("split", *rank_data.SHARDED) else 7
    # Each batch was trained on once.
    assert first["iterations"] == 4 * batches
    if kind != "eager":
        alone = 3 if kind == "several steps" else 1
        assert first["traces"] <= 2 * alone, "looking must not trace again"


def test_a_batch_of_ranks_that_have_different_ones():
    said = "keras_ring: 3 ranks, a global batch of 8 + 8 + 5 = 21"
    assert same_batch._batch_of_all([8, 8, 5]) == said
    said = "keras_ring: 9 ranks, a global batch of 65"
    assert same_batch._batch_of_all([8] * 8 + [1]) == said


@pytest.mark.parametrize("name", FILES)
def test_files_are_divided(two_ranks, folders, name):
    results = two_ranks("many_files", folders[name], UNEVEN_FILES, FILES[name])
    (first, length), (second, other_length) = results
    assert length == other_length == len(first[0]) == len(second[0])
    num = sum(UNEVEN_FILES)
    assert length == num // 2
    for epoch in range(2):
        assert sorted(first[epoch] + second[epoch]) == list(range(num))
    assert (first[0] == first[1]) == (name != "shuffled")
    # Each file belongs to one rank, and files are read in turn.
    begin = 0
    for size in UNEVEN_FILES:
        file = set(range(begin, begin + size))
        begin += size
        assert file <= set(first[0]) or file <= set(second[0])
    assert first[0] != sorted(first[0])


def test_one_file_for_two_ranks(two_ranks, folders):
    results = two_ranks("many_files", folders["one"], (9,), ())
    read = [epochs[0] for epochs, _ in results]
    assert read == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 0]]


def test_hosts_that_cache_in_one_file(tmp_path):
    result = run_ranks(
        rank_data.cached_by_hosts, 2, args=(str(tmp_path),), hosts=[0, 1]
    )
    for rank in result.ranks:
        num_hosts, said = rank.value
        # As far as these know, each has files of its own.
        assert num_hosts == 2
        words = "Ranks 0, 1, whose hosts share files:/export, cache a dataset "
        assert words + f"in one file, '{tmp_path}/one'" in said


def test_ranks_that_cache_in_one_file(two_ranks, folders):
    folder = folders["caches"]
    first, second = two_ranks("cached_in_files", folder)
    for name in ("before", "behind", "complete behind"):
        file = f"{folder}/{'complete' if 'complete' in name else 'one'}"
        assert first[name] == second[name]
        words = f"Ranks 0, 1 of this host cache a dataset in one file, {file!r}"
        assert words in first[name]
        assert "{kr.rank()}-of-{kr.size()}" in first[name]
        assert "in memory" in first[name]
    for name in ("complete before", "own", "memory"):
        parts = first[name], second[name]
        assert parts == (list(range(0, 16, 2)), list(range(1, 16, 2))), name
