"""What a program of one process does once, on ranks."""

import pytest

from tests.auto import rank_once
from tests.auto.alike import require_alike, require_same_weights
from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)

FOLDERS = (
    "paths",
    "checkpoints",
    "tensorflow",
    "callbacks",
    "pictures",
    "others",
    "paths_of_one_rank",
    "path_that_one_rank_makes",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Gives each function a directory, of all ranks."""
    top = tmp_path_factory.mktemp("once")
    for name in FOLDERS:
        (top / name).mkdir()
    return {name: str(top / name) for name in FOLDERS}


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    """Has one process do the same in a directory of its own."""
    top = tmp_path_factory.mktemp("one")
    calls = []
    for function, name in (
        ("checkpoints", "checkpoints"),
        ("files_of_tensorflow", "tensorflow"),
        ("callbacks_that_write", "callbacks"),
        ("callbacks_that_draw", "pictures"),
    ):
        (top / name).mkdir()
        calls.append((function, str(top / name)))
    found = run_calls(rank_once, 1, calls, deadline=280)
    return {call[0]: (call[1], *found(*call)) for call in calls}


@pytest.fixture(scope="module")
def three_ranks(folders):
    return run_calls(
        rank_once,
        rank_once.RANKS,
        [
            ("paths", folders["paths"]),
            ("checkpoints", folders["checkpoints"]),
            ("files_of_tensorflow", folders["tensorflow"]),
            ("callbacks_that_write", folders["callbacks"]),
            ("callbacks_that_draw", folders["pictures"]),
            ("callbacks_on_all_ranks", folders["others"]),
            ("paths_of_one_rank", folders["paths_of_one_rank"]),
            # A rank waits for others then, which come in another way.
            ("path_that_one_rank_makes", folders["path_that_one_rank_makes"]),
        ],
        deadline=400,
    )


def test_paths_change_as_in_one_process(three_ranks, folders):
    folder = folders["paths"]
    found = only(three_ranks("paths", folder))
    assert found == [
        False,
        ("FileExistsError", 17, f"{folder}/run"),
        f"{folder}/run/a/b/four",
        ["run", "run/a", "run/a/b", "run/a/b/four", "run/five", "run/three"],
        ["run", "run/a", "run/five"],
        False,
    ]


def test_no_rank_waits_for_what_is_its_own(three_ranks, folders):
    found = only(three_ranks("paths_of_one_rank", folders["paths_of_one_rank"]))
    assert found == [True, False, ["of_error", "of_rank", "of_thread"]]


def test_a_rank_that_comes_alone_is_told(three_ranks, folders):
    name = "path_that_one_rank_makes"
    texts, exists = zip(*three_ranks(name, folders[name]), strict=True)
    assert texts[0] is None
    assert texts[2] is None
    said, text = texts[1]
    assert "keras_ring: rank 1 waits: rank_once.py:" in said
    assert text.startswith("AutoError: rank_once.py:"), text
    assert "calls `os.mkdir` for " in text
    assert (
        "in 1 s not all of them have come there (KERAS_RING_AUTO_WAIT gives "
        "them more)" in text
    )
    assert not any(exists)


def _elsewhere(value, before, after):
    """Returns the same, found in another directory."""
    if isinstance(value, list):
        return [_elsewhere(each, before, after) for each in value]
    return value.replace(before, after) if isinstance(value, str) else value


def test_checkpoints_are_those_of_one_process(three_ranks, one_rank, folders):
    folder = folders["checkpoints"]
    one, wanted = one_rank["checkpoints"]
    of_ranks = three_ranks("checkpoints", folder)
    for found in of_ranks:
        assert found["found"] == _elsewhere(wanted["found"], one, folder)
        require_alike(found["weights"], wanted["weights"])
    require_same_weights([found["weights"] for found in of_ranks])


def test_files_of_tensorflow_are_those_of_one_process(
    three_ranks, one_rank, folders
):
    _, wanted = one_rank["files_of_tensorflow"]
    folder = folders["tensorflow"]
    assert only(three_ranks("files_of_tensorflow", folder)) == wanted
    assert wanted[:4] == [500, wanted[1], "once\n", b"once"]


def test_callbacks_that_write_do_so_once(three_ranks, one_rank, folders):
    _, (wanted, _) = one_rank["callbacks_that_write"]
    assert (len(wanted["run"]), wanted["lines"], wanted["stopped"]) == (4, 4, 2)
    by_rank = three_ranks("callbacks_that_write", folders["callbacks"])
    for found, _ in by_rank:
        require_alike(found, wanted)
    require_same_weights([found["weights"] for found, _ in by_rank])
    said = by_rank[0][1]
    assert "callback Tracker reaches outside (sqlite3): run by rank 0" in said
    assert "callback LambdaCallback reaches outside (open)" in said
    assert "callback Keeps" not in said
    assert "on each of the 3 ranks" not in said


def test_callbacks_that_draw_do_so_once(three_ranks, one_rank, folders):
    _, (wanted, _) = one_rank["callbacks_that_draw"]
    by_rank = three_ranks("callbacks_that_draw", folders["pictures"])
    for found, _ in by_rank:
        require_alike(found, wanted)
    require_same_weights([found["weights"] for found, _ in by_rank])
    said = by_rank[0][1]
    assert "callback Draws reaches outside (save): run by rank 0 of 3" in said
    assert "on each of the 3 ranks" not in said


def test_callbacks_that_cannot_be_followed_run_on_all(three_ranks, folders):
    by_rank = three_ranks("callbacks_on_all_ranks", folders["others"])
    assert "callback Freezes runs on each of the 3 ranks" in by_rank[0][0]
    assert {error for _, error in by_rank} == {"no such row as 0"}
