"""Checks that a source archive has every file that a build has read.

Usage: check_source_archive.py ARCHIVE BUILD..., with directories that ninja
has built in, which keeps a list of what compilers and CMake have read.
"""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What only tests of the same build read.
_NOT_NEEDED = ("tests", "benchmarks")
# Where things are made and installed: build, .venv, .venv-tf215.
_MADE = ("build", ".venv")


def files_read(build: Path) -> Iterator[Path]:
    """Yields the files of the checkout that a build has read."""
    for tool in (["deps"], ["inputs", "-d", "all"], ["query", "build.ninja"]):
        told = subprocess.run(
            ["ninja", "-C", str(build), "-t", *tool],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        ).stdout
        for line in told.splitlines():
            path = (build / line.strip().removeprefix("| ")).resolve()
            if path.is_file() and path.is_relative_to(ROOT):
                yield path.relative_to(ROOT)


def is_needed(path: Path) -> bool:
    """Says whether an archive must have a file of the checkout."""
    first = path.parts[0]
    return first not in _NOT_NEEDED and not first.startswith(_MADE)


def main() -> int:
    """Names what is missing, and says how many files were looked for."""
    archive, *builds = sys.argv[1:]
    with tarfile.open(archive) as tar:
        # The first part is the name of the archive itself.
        there = {Path(*Path(name).parts[1:]) for name in tar.getnames()}
    read = {path for build in builds for path in files_read(Path(build))}
    needed = set(filter(is_needed, read))
    missing = sorted(map(str, needed - there))
    for name in missing:
        print(f"{archive} has no {name}, which the build reads")
    if len(needed) < 100:
        print(f"only {len(needed)} files were read by {' '.join(builds)}")
        return 1
    if missing:
        return 1
    print(f"{archive} has the {len(needed)} files that the build reads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
