"""Where the ranks of a job leave the parts of its timeline."""

from pathlib import Path


def parts_directory(path: Path) -> Path:
    """Returns the directory of the parts.

    Args:
        path: The file that is made of them.
    """
    return path.with_name(path.name + ".ranks")
