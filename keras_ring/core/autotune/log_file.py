"""A CSV file of the settings that were tried: one row per sample."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_ring import errors
from keras_ring.core import notices
from keras_ring.core.autotune.search_space import Knob, Setting, text_of


class TuningLog:
    """A file that is written while the job is tuned.

    Args:
        path: Path of the file, which is replaced; `""` for none.
        knobs: The knobs that are tuned. Each has a column.

    Raises:
        ConfigurationError: If it cannot be written.
    """

    def __init__(self, path: str, knobs: Sequence[Knob]) -> None:
        self._knobs = knobs
        self._path = path
        self._file = None
        if not path:
            return
        try:
            self._file = Path(path).open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise errors.ConfigurationError(
                f"KERAS_RING_AUTOTUNE_LOG is {path!r}, which cannot be written:"
                f" {error.strerror}"
            ) from None
        columns = [
            f"{knob.name} [{knob.unit}]" if knob.unit else knob.name
            for knob in knobs
        ]
        self._write("time [s]", "phase", *columns, "score [bytes/s]")

    def sample(
        self, seconds: float, phase: str, setting: Setting, score: float
    ) -> None:
        """Adds a row."""
        values = [setting[knob.name] for knob in self._knobs]
        self._write(f"{seconds:.3f}", phase, *values, f"{score:.0f}")

    def end(self, what: str, setting: Setting) -> None:
        """Adds the last line, which says what was chosen, and closes it."""
        with self._giving_up():
            if self._file is not None:
                self._file.write(f"# {what}: {text_of(setting)}\n")
        self.close()

    def close(self) -> None:
        """Closes the file, if there is one."""
        with self._giving_up():
            if self._file is not None:
                self._file.close()
        self._file = None

    def _write(self, *row: object) -> None:
        with self._giving_up():
            if self._file is not None:
                csv.writer(self._file, lineterminator="\n").writerow(row)
                self._file.flush()

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Closes the file and goes on without it if a write fails."""
        try:
            yield
        except OSError as error:
            notices.warn(
                f"cannot write {self._path}: {error.strerror}; the tuning goes "
                "on without it."
            )
            file, self._file = self._file, None
            if file is not None:
                # `close` tries once more to write what is buffered.
                with contextlib.suppress(OSError):
                    file.close()
