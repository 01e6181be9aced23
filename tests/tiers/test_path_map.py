"""What a change pulls into the gate, and that nothing is forgotten."""

import subprocess
from pathlib import Path

import pytest

from tests.tiers import path_map
from tests.tiers.changes import LANDED, ROOT, changed_paths


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("csrc/comm/new_file.h", "faults"),
        ("csrc/collective/net/ring.cc", "programs"),
        ("csrc/control/controller.cc", "sanitized"),
        ("csrc/base/options.cc", "sanitized"),
        ("csrc/tls/openssl_tls.cc", "sanitized"),
        ("tests/cpp/comm/new_test.cc", "sanitized"),
        ("tests/fuzz/corpus/wire/new", "sanitized"),
        ("csrc/runtime/background_loop.cc", "faults"),
        ("tf_ops/collective_kernel.cc", "programs"),
        ("keras_ring/launch/job.py", "launcher-kills"),
        ("keras_ring/keras/checkpoint/__init__.py", "saves"),
        ("keras_ring/keras/optimizer/optimizer.py", "parity"),
        ("keras_ring/new_file.py", "examples"),
        ("examples/tape_digits.py", "examples"),
    ],
)
def test_a_floor_pulls_what_protects_it(path, part):
    assert part in path_map.pulled_by([path])


@pytest.mark.parametrize("path", ["docs/faults.md", ".gitignore"])
def test_pages_pull_nothing(path):
    assert path_map.pulled_by([path]) == path_map.NONE


def test_parts_add_up():
    one = path_map.pulled_by(["csrc/tls/openssl_tls.cc"])
    other = path_map.pulled_by(["keras_ring/keras/checkpoint/__init__.py"])
    both = path_map.pulled_by(
        [
            "docs/tls.md",
            "csrc/tls/openssl_tls.cc",
            "keras_ring/keras/checkpoint/__init__.py",
        ]
    )
    assert both == one | other != one


@pytest.mark.parametrize(
    "paths", [None, ["Makefile"], ["csrc/nccl/a.cc"], ["docs/a.md", "new/a.py"]]
)
def test_in_doubt_it_is_all(paths):
    assert path_map.pulled_by(paths) == path_map.ALL


def test_the_map_names_parts_and_files_that_exist():
    for start, parts in path_map.PATH_MAP.items():
        assert parts <= path_map.ALL, start
        folder, _, name = start.rpartition("/")
        assert list((ROOT / folder).glob(f"{name}*")), start


def test_every_part_is_pulled_by_something():
    pulled = frozenset().union(*path_map.PATH_MAP.values())
    narrow = frozenset().union(
        *(
            parts
            for parts in path_map.PATH_MAP.values()
            if parts != path_map.ALL
        )
    )
    assert pulled == narrow == path_map.ALL


def test_every_part_is_something():
    tests = "".join(
        path.read_text()
        for path in (ROOT / "tests").rglob("*.py")
        if path.parent.name != "tiers" or path.name == "__init__.py"
    )
    makefile = (ROOT / "Makefile").read_text()
    for part in path_map.PARTS:
        if part in path_map.MAKE:
            assert f"\ntest-{part}:" in makefile
        else:
            assert f'"{part}"' in tests, part


def test_no_source_is_in_doubt():
    """All are on the map, but for those that decide what is tested."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    paths = tracked.stdout.splitlines()
    unknown = [
        path
        for path in paths
        if not any(path.startswith(start) for start in path_map.PATH_MAP)
    ]
    assert set(unknown) <= {
        ".ci/run",
        "Makefile",
        "pyproject.toml",
        "requirements.txt",
        "requirements-tf215.txt",
        "tools/install_system_packages.sh",
        "tools/tf215.cfg",
    }


# --- What has changed ---


@pytest.fixture
def checkout(tmp_path):
    def git(*words):
        subprocess.run(
            [
                *("git", "-c", "user.name=a", "-c", "user.email=a@example.com"),
                *words,
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    def head():
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        return found.stdout.strip()

    git("init", "-q")
    (tmp_path / "old.py").write_text("1")
    (tmp_path / "moved.py").write_text("a file that moves")
    git("add", ".")
    git("commit", "-q", "-m", "landed")
    landed = tmp_path / LANDED
    landed.parent.mkdir()
    landed.write_text(head() + "\n")
    git("add", ".")
    git("commit", "-q", "-m", "after")
    return tmp_path, git


def test_changes_of_all_kinds(checkout):
    root, git = checkout
    assert changed_paths(root) == [LANDED]
    (root / "committed.py").write_text("2")
    git("mv", "moved.py", "elsewhere.py")
    git("add", ".")
    git("commit", "-q", "-m", "more")
    (root / "staged.py").write_text("3")
    git("add", "staged.py")
    (root / "old.py").write_text("4")
    (root / "untracked ü.py").write_text("5")
    assert changed_paths(root) == [
        LANDED,
        "committed.py",
        "elsewhere.py",
        "moved.py",
        "old.py",
        "staged.py",
        "untracked ü.py",
    ]


def test_an_unknown_commit_is_doubt(checkout):
    root, _ = checkout
    (root / LANDED).write_text("0" * 40)
    assert changed_paths(root) is None
    (root / LANDED).unlink()
    assert changed_paths(root) is None


def test_a_commit_that_this_is_not_based_on_is_doubt(checkout):
    root, git = checkout
    git("checkout", "-q", "--orphan", "other")
    git("commit", "-q", "-m", "from nothing")
    assert changed_paths(root) is None


def test_no_git_is_doubt(tmp_path):
    (tmp_path / Path(LANDED).parent).mkdir()
    (tmp_path / LANDED).write_text("0" * 40)
    assert changed_paths(tmp_path) is None
