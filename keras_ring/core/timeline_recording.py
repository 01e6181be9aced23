"""Records a timeline while a program runs: `kr.start_timeline()`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from keras_ring import errors
from keras_ring.core import native, notices, topology
from keras_ring.protocol.timeline_parts import parts_directory

# Path of the recording that this process has started.
_path: Path | None = None

# The rank that has made this file merges the parts.
_CLAIM = "joined"


def start_timeline(path: str | Path, mark_cycles: bool = False) -> None:
    """Starts to record the activities of this rank.

    Every rank that is to be in the timeline calls this, at any time after
    `init()`; the ranks need not call it together, and do not wait for each
    other. Records are written to the disk ten times in a second, so that a
    killed rank leaves all but the last ones.

    `keras-ring run --timeline FILE` records a job from its start to its end.
    The signal SIGUSR2 makes a rank record for five seconds.

    Args:
        path: The file of all ranks: `.json` or `.json.gz` for the Trace Event
            Format, which https://ui.perfetto.dev and chrome://tracing open,
            anything else for a trace of Perfetto. The ranks write into a
            directory beside it, with `.ranks` after its name.
        mark_cycles: Boolean, whether each decision of the coordinator is
            recorded. Defaults to `False`.

    Raises:
        NotInitializedError: Before `init()`.
        ConfigurationError: If a timeline is being recorded already, or cannot
            be written; the text says why.

    Example:
    ```python
    kr.start_timeline("/tmp/epoch_3.json")
    model.fit(x, y)
    kr.stop_timeline()
    ```
    """
    global _path
    topology.topology()
    whole = Path(os.path.abspath(path))
    core = native.core()
    with contextlib.suppress(FileNotFoundError):
        (parts_directory(whole) / _CLAIM).unlink()
    try:
        core.start_timeline(str(whole), mark_cycles)
    except core.StatusError as error:
        raise errors.ConfigurationError(
            f"The timeline {whole} cannot be recorded: {error.args[1]}"
        ) from None
    _path = whole


def stop_timeline() -> None:
    """Ends the recording that `start_timeline()` has begun.

    The last rank of the job to stop makes the file of all ranks, if they are on
    one host or share the directory. Otherwise, or if a rank never stops,
    `keras-ring report` can read the directory of the parts. Without a recording
    this does nothing.

    If the file cannot be written, that is a warning, and the parts are kept.
    """
    global _path
    if not native.core().is_initialized():
        return
    native.core().stop_timeline()
    path, _path = _path, None
    if path is not None and _is_last(parts_directory(path)):
        from keras_ring.observe.timeline import merge

        try:
            merge.merge(path)
        except OSError as error:
            notices.warn(
                f"cannot write the timeline {path}: "
                f"{error.strerror or error}; the ranks' parts are in "
                f"{parts_directory(path)}."
            )


def _is_last(parts: Path) -> bool:
    """Returns whether all ranks have stopped and this one is to merge them."""
    ends = 0
    for rank in range(topology.size()):
        with contextlib.suppress(OSError):
            lines = (parts / f"rank.{rank}.jsonl").read_bytes()
            ends += b'\n{"type":"end"' in lines
    if ends < topology.size():
        return False
    try:
        (parts / _CLAIM).touch(mode=0o600, exist_ok=False)
    except OSError:
        return False
    return True
