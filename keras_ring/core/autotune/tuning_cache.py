"""A cache of tuned settings, for the next job of the same kind.

Each pair of cluster and model has one small file, named after both. A job
writes a temporary file and renames it, so jobs that end at the same time do
not disturb each other, and a reader finds the old file or the new one, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_ring._version import __version__
from keras_ring.core.autotune.search_space import Knob, Setting

_FORMAT = 1
# A larger file was not written by keras_ring.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Kind:
    """Key of a cached setting, which applies to jobs with an equal key only.

    Args:
        cluster: The ranks and how they communicate, as text by name.
        tensors: Integer, the mean number of tensors that a step reduces.
        num_bytes: Integer, the size of these tensors together, in bytes.
    """

    cluster: Mapping[str, str]
    tensors: int
    num_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Returns the key as it is written to the file."""
        return {
            "format": _FORMAT,
            "keras_ring": __version__,
            "cluster": dict(self.cluster),
            "step": {"tensors": self.tensors, "bytes": self.num_bytes},
        }

    def file_name(self) -> str:
        """Returns the name of its file."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"


def directory_of(option: str, environment: Mapping[str, str]) -> Path | None:
    """Returns the directory of the cache, or `None` if there is none.

    Args:
        option: Value of `KERAS_RING_AUTOTUNE_CACHE`.
        environment: Environment of this process.
    """
    if option:
        return None if option == "off" else Path(option)
    cache = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # as the XDG specification has it
        try:
            cache = str(Path.home() / ".cache")
        except RuntimeError:
            return None
    return Path(cache) / "keras_ring" / "autotune"


class KeptSettings:
    """The folder of kept settings.

    Args:
        directory: Path of the folder, which need not exist yet. If `None`,
            nothing is kept.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def find(self, kind: Kind, knobs: Sequence[Knob]) -> Setting | None:
        """Returns what was kept for this kind of job, if anything was.

        Raises:
            ValueError: If the content of the file is invalid.
        """
        if self._directory is None:
            return None
        path = self._directory / kind.file_name()
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES)
        except OSError:
            return None
        try:
            return _setting_in(json.loads(text), kind, knobs)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: {error}") from None

    def keep(self, kind: Kind, setting: Setting, gain: float) -> None:
        """Keeps a setting for this kind of job.

        Raises:
            OSError: If it cannot be written.
        """
        if self._directory is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        content = {**kind.as_json(), "setting": setting, "gain": round(gain, 4)}
        descriptor, part = tempfile.mkstemp(dir=self._directory)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(part, self._directory / kind.file_name())
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise


def _setting_in(content: Any, kind: Kind, knobs: Sequence[Knob]) -> Setting:
    if not isinstance(content, dict) or not (
        kind.as_json().items() <= content.items()
    ):
        raise ValueError("is not of this kind of job")
    setting = content.get("setting")
    if not isinstance(setting, dict) or set(setting) != {
        knob.name for knob in knobs
    }:
        raise ValueError("has not the knobs of this job")
    for knob in knobs:
        value = setting[knob.name]
        if type(value) is not int or not knob.low <= value <= knob.high:
            raise ValueError(
                f"{knob.name} is {value!r}: expected an integer from {knob.low}"
                f" to {knob.high}"
            )
    return {knob.name: setting[knob.name] for knob in knobs}
