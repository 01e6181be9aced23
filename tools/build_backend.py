"""The build backend: that of setuptools, and the TensorFlow to build for."""

from typing import Any

import target_frameworks
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Returns what a wheel needs to be built, beyond pyproject.toml."""
    return [
        *build_meta.get_requires_for_build_wheel(config_settings),
        *target_frameworks.requirements(),
    ]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Returns what an editable install needs to be built."""
    return [
        *build_meta.get_requires_for_build_editable(config_settings),
        *target_frameworks.requirements(),
    ]
