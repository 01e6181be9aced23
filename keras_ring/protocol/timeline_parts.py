"""The directory for the parts of a job's timeline."""

from pathlib import Path


def parts_directory(path: Path) -> Path:
    """Returns the directory of the parts.

    Args:
        path: Path of the file that is made of them.
    """
    return path.with_name(path.name + ".ranks")
