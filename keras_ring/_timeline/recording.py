"""Records a timeline while a program runs: `kr.start_timeline()`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from keras_ring import errors
from keras_ring._launch_protocol.timeline_parts import parts_directory
from keras_ring._runtime import native, notices, topology

# Of the recording that this process has started.
_path: Path | None = None

# Who has made this joins the parts.
_CLAIM = "joined"


def start_timeline(path: str | Path, mark_cycles: bool = False) -> None:
    """Starts to record what this rank does.

    Every rank that is to be in the timeline calls this, at any time after
    `init()`; the ranks need not call it together, and do not wait for each
    other. What is recorded goes to the disk ten times in a second, so that a
    rank that is killed leaves what it has done until then.

    `keras-ring run --timeline FILE` does the same from the start of a job to
    its end, and a SIGUSR2 to a rank for five seconds.

    Args:
        path: The file of all ranks: `.json` or `.json.gz` for the Trace Event
            Format, which https://ui.perfetto.dev and chrome://tracing open,
            anything else for a trace of Perfetto. The ranks write into a
            directory beside it, with `.ranks` after its name.
        mark_cycles: Boolean, whether each decision of the coordinator is shown.
            Defaults to `False`.

    Raises:
        NotInitializedError: Before `init()`.
        ConfigurationError: If one is being recorded, or cannot be written; the
            text says why.

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
    """Ends what `start_timeline()` has begun.

    The rank that is the last of the job to stop makes the file of all ranks, if
    they are on one host or share the directory. Else, or where a rank never
    stops, `keras-ring report` reads the directory of the parts. Without a
    recording it does nothing.

    A file that cannot be written is a warning; the parts are still there.
    """
    global _path
    if not native.core().is_initialized():
        return
    native.core().stop_timeline()
    path, _path = _path, None
    if path is not None and _is_last(parts_directory(path)):
        from keras_ring._timeline import merge

        try:
            merge.merge(path)
        except OSError as error:
            notices.warn(
                f"cannot write the timeline {path}: "
                f"{error.strerror or error}; the ranks' parts are in "
                f"{parts_directory(path)}."
            )


def _is_last(parts: Path) -> bool:
    """Whether all ranks have stopped, and no other one joins the parts."""
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
