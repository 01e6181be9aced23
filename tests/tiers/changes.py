"""What has changed since the last commit that landed.

`.ci/landed` names it; `make landed` writes it, as the first change of whoever
goes on from there. Forgotten, it names an older one, and more is tested.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANDED = ".ci/landed"


def changed_paths(root: Path = ROOT) -> list[str] | None:
    """Returns the paths that differ from the last landed commit.

    Commits, the index, the working tree and untracked files all count. None if
    it cannot be told: no git, no such commit, or none that this one is based
    on.
    """
    try:
        landed = (root / LANDED).read_text().strip()
        _git(root, "merge-base", "--is-ancestor", landed, "HEAD")
        changed = _git(root, "diff", "--name-only", "--no-renames", landed)
        new = _git(root, "ls-files", "--others", "--exclude-standard")
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted({*changed.splitlines(), *new.splitlines()})


def head(root: Path = ROOT) -> str:
    """Returns the commit that is checked out, or "" if there is no git."""
    try:
        return _git(root, "rev-parse", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def is_clean(root: Path = ROOT) -> bool:
    """Returns whether the tree is exactly what is checked out."""
    try:
        return not _git(root, "status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return False


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "core.quotePath=off", *words],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
