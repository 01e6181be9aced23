"""Files that tell about a job, and could not be written."""

from pathlib import Path

from keras_ring.launcher.usage import say

# Of those that are not told one by one.
_MOST_NAMES = 4


class LostFiles:
    """Tells of files without which a job goes on.

    What only tells about a training is no reason to end it: its disk may be
    full, its server away.
    """

    def __init__(self) -> None:
        # Reasons that were told.
        self._told: set[str] = set()
        self._untold: list[str] = []

    def note(self, path: str | Path, error: OSError) -> None:
        """Says which file cannot be written, the first for each reason."""
        reason = error.strerror or str(error)
        if reason in self._told:
            self._untold.append(str(path))
            return
        self._told.add(reason)
        say(
            f"cannot write {path}: {reason}; the job goes on without it",
            level="warning",
        )

    def tell_others(self) -> None:
        """Names the other files, at the end."""
        if not self._untold:
            return
        names = ", ".join(self._untold[:_MOST_NAMES])
        more = len(self._untold) - _MOST_NAMES
        others = f" and {more} more" if more > 0 else ""
        say(f"not all could be written of {names}{others}", level="warning")
        self._untold.clear()
