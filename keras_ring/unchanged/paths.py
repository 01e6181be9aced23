"""Makes rank 0 alone make, move and remove files and directories.

Many programs begin with `os.makedirs("run")`. If all ranks called it, one would
make the directory and the others would fail, because it exists. So rank 0 makes
such calls of the program (`once`).

Calls of libraries are left alone, and so are paths that belong to one rank:
temporary files and devices.
"""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import once, script

_PURPOSE = "rank 0 changes paths of the program, and the others wait"

IsDone = Callable[..., bool]


def _is_there(path: Any, *_: Any) -> bool:
    return os.path.lexists(path)


def _is_gone(path: Any, *_: Any) -> bool:
    return not os.path.lexists(path)


def _has_second(_: Any, path: Any, *__: Any) -> bool:
    return os.path.lexists(path)


def _unpacked(*_: Any) -> bool:
    # The result is not known; to repeat the call changes nothing.
    return False


# By name: the number of paths among its first arguments, and a function that
# tells by the file system whether the call has taken effect.
_CHANGES: dict[str, tuple[int, IsDone]] = {
    "mkdir": (1, _is_there),
    "makedirs": (1, _is_there),
    "touch": (1, _is_there),
    "remove": (1, _is_gone),
    "unlink": (1, _is_gone),
    "rmdir": (1, _is_gone),
    "removedirs": (1, _is_gone),
    "rmtree": (1, _is_gone),
    "rename": (2, _is_gone),
    "renames": (2, _is_gone),
    "replace": (2, _is_gone),
    "move": (2, _is_gone),
    "symlink": (2, _has_second),
    "link": (2, _has_second),
    "symlink_to": (1, _is_there),
    "hardlink_to": (1, _is_there),
    "copy": (2, _has_second),
    "copy2": (2, _has_second),
    "copyfile": (2, _has_second),
    "copytree": (2, _has_second),
    "make_archive": (1, _unpacked),
    "unpack_archive": (1, _unpacked),
}


def install() -> None:
    """Changes the functions that change paths. Calling it once is enough."""
    for point in hooks.points(events.PATH_CHANGED):
        owner, name = point.owner, point.name
        title = _title(owner)
        count, is_done = _CHANGES[name]
        before = getattr(owner, name)
        hooks.subscribe(
            events.PATH_CHANGED,
            functools.partial(
                _once, what=f"{title}.{name}", count=count, is_done=is_done
            ),
            ring=Ring.UNCHANGED,
            purpose=_PURPOSE,
            at=point,
        )
        after = getattr(owner, name)
        if owner is os:
            _keep_abilities(before, after)
        if owner is not pathlib.Path:
            script.rebind(before, after)


def is_of_one_rank(path: Any) -> bool:
    """Returns whether a path is of this rank alone, or is no path of a file.

    Args:
        path: The object that the program has given as a path.
    """
    try:
        text = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        # A file descriptor, or a mistake of the program.
        return True
    if text.startswith(("/dev/", "/proc/")):
        return True
    # Paths that `tempfile` makes, unless all ranks work in such a directory.
    own = os.path.join(tempfile.gettempdir(), tempfile.gettempprefix())
    return text.startswith(own) and not text.startswith(os.getcwd())


def _once(
    change: Callable[..., Any], what: str, count: int, is_done: IsDone
) -> Callable[..., Any]:
    @functools.wraps(change)
    def change_once(*args: Any, **kwargs: Any) -> Any:
        if once.is_running():
            return change(*args, **kwargs)
        do = functools.partial(change, *args, **kwargs)
        # Paths come first in all these functions, also if given by name.
        paths = [*args, *kwargs.values()][:count]
        if (
            len(paths) < count
            or any(map(is_of_one_rank, paths))
            or any(kwargs.get(each) is not None for each in _BY_NUMBER)
            or not script.line_of_direct_call()
        ):
            return do()
        if once.is_over() or once.is_failing():
            return once.after_end(do, lambda: is_done(*paths))
        if once.is_said_by_program() or not once.is_of_all_ranks():
            return do()
        return once.by_rank_zero(
            do,
            what,
            [os.path.abspath(os.fsdecode(path)) for path in paths],
            is_done=lambda: is_done(*paths),
        )

    return change_once


def _title(owner: Any) -> str:
    """Returns the name that programs use for what has a function."""
    is_of_tensorflow = owner.__name__.endswith(".io.gfile")
    if is_of_tensorflow:
        return "tf.io.gfile"
    return str(getattr(owner, "__qualname__", owner.__name__))


# Arguments for directories that this process has opened.
_BY_NUMBER = ("dir_fd", "src_dir_fd", "dst_dir_fd")


def _keep_abilities(before: Any, after: Any) -> None:
    """Registers a replaced function of `os` for what the original supports."""
    for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks"):
        able = getattr(os, name)
        if before in able:
            able.add(after)
