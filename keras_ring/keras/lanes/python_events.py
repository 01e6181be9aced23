"""The functions of Python, and of keras_ring, that events are bound to."""

from __future__ import annotations

from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, Table

TABLE: Table = {
    events.PATH_CHANGED: (
        Bound(
            "os:mkdir, makedirs, remove, unlink, rmdir, removedirs, rename, "
            "renames, replace, symlink, link"
        ),
        Bound(
            "shutil:rmtree, move, copy, copy2, copyfile, copytree, "
            "make_archive, unpack_archive"
        ),
        Bound(
            "pathlib:Path.mkdir, touch, unlink, rmdir, rename, replace, "
            "symlink_to, hardlink_to"
        ),
    ),
    events.RANK_ASKED: (Bound("keras_ring:rank, local_rank, cross_rank"),),
    events.INPUT_ASKED: (Bound("builtins:input"),),
}
