"""Messages about output files of a job that could not be written."""

from pathlib import Path

from keras_ring.launch.usage import say

# Names in the last message.
_MOST_NAMES = 4


class LostFiles:
    """The files that could not be written, while the job goes on.

    A full disk or a lost file server is no reason to end a training if the
    files only describe it.
    """

    def __init__(self) -> None:
        # Reasons that were printed.
        self._told: set[str] = set()
        self._untold: list[str] = []

    def note(self, path: str | Path, error: OSError) -> None:
        """Records a lost file, and prints a message for each new reason."""
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
        """Prints the names of the other files, at the end of a job."""
        if not self._untold:
            return
        names = ", ".join(self._untold[:_MOST_NAMES])
        more = len(self._untold) - _MOST_NAMES
        others = f" and {more} more" if more > 0 else ""
        say(f"not all could be written of {names}{others}", level="warning")
        self._untold.clear()
