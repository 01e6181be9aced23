"""Applies the rules of `floors` to the tree."""

import re
from pathlib import Path

import pytest

from tests.lint import floors

ROOT = Path(__file__).resolve().parents[2]


def _cpp_files(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).glob("*")
        if path.suffix in (".h", ".cc", ".cu")
    )


def _told(problems: dict[Path, list[str]]) -> str:
    return "\n".join(
        f"{path.relative_to(ROOT)}: {problem}"
        for path, found in problems.items()
        for problem in found
    )


@pytest.mark.parametrize("folder", floors.CPP_FLOORS)
def test_core_includes_only_downwards(folder):
    files = _cpp_files(folder)
    assert files, f"no file in {folder}"
    told = _told(
        {path: floors.core_problems(folder, path.read_text()) for path in files}
    )
    assert not told, told


@pytest.mark.parametrize("folder", floors.ADAPTERS)
def test_adapters_see_only_the_api_of_the_core(folder):
    files = _cpp_files(folder)
    assert files, f"no file in {folder}"
    told = _told(
        {
            path: floors.adapter_problems(folder, path.read_text())
            for path in files
        }
    )
    assert not told, told


def test_the_c_interface_stands_alone():
    header = ROOT / "csrc/capi/keras_ring.h"
    assert not floors.c_header_problems(header.read_text())


def test_no_environment_sleep_or_feature_test_in_cpp():
    folders = [*floors.CPP_FLOORS, *floors.ADAPTERS]
    reader = ROOT / "csrc/base/options.cc"
    told = _told(
        {
            path: floors.banned_calls(
                path.read_text(), may_read_environment=path == reader
            )
            for path in _cpp_files(*folders)
        }
    )
    assert not told, told


def test_nobody_takes_connections_without_a_handshake():
    """Those over TCP come through the acceptor, which has one."""
    taking = {
        path.name
        for path in _cpp_files(*floors.CPP_FLOORS, *floors.ADAPTERS)
        if path.name not in ("socket.h", "socket.cc", "local_socket.cc")
        and re.search(r"\b(Accept|accept4?)\(", path.read_text())
    }
    assert taking == {"acceptor.cc"}


def test_every_folder_of_csrc_is_a_floor():
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "csrc").rglob("*.[hc]*")
        if path.name != "CMakeLists.txt"
    }
    assert folders - {"csrc/testing"} == set(floors.CPP_FLOORS)


def test_python_imports():
    package = ROOT / "keras_ring"
    told = _told(
        {
            path: floors.python_problems(
                path.relative_to(package).as_posix(), path.read_text()
            )
            for path in sorted(package.rglob("*.py"))
        }
    )
    assert not told, told


def test_texts_quote_what_is_there():
    package = ROOT / "keras_ring"
    files = sorted(package.rglob("*.py"))
    modules = {part for path in files for part in path.with_suffix("").parts}
    told = _told(
        {
            path: floors.quoted_problems(path.read_text(), modules)
            for path in files
        }
    )
    assert not told, told
