"""The C structs that tests declare are those of the header."""

import ctypes
import re
from pathlib import Path

import pytest

from tests.gpu import c_interface

_HEADER = Path(__file__).parents[2] / "csrc/capi/keras_ring.h"


def fields_of(struct):
    """Returns the names of the fields of a struct, in their order."""
    text = re.sub(r"/\*.*?\*/", "", _HEADER.read_text(), flags=re.DOTALL)
    body = re.search(
        rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.S
    )
    names = []
    for line in body.group(1).split(";"):
        pointer = re.search(r"\(\*(\w+)\)", line)
        plain = re.search(r"(\w+)\s*$", line)
        if pointer or plain:
            names.append((pointer or plain).group(1))
    return names


@pytest.mark.parametrize(
    "declared",
    [
        each
        for each in vars(c_interface).values()
        if isinstance(each, type) and issubclass(each, ctypes.Structure)
    ],
    ids=lambda each: each.__name__,
)
def test_a_struct_has_the_fields_of_the_header(declared):
    struct = re.match(r"Kr\w+", declared.__doc__).group()
    assert [name for name, *_ in declared._fields_] == fields_of(struct)
