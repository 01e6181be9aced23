"""What `meeting` says of the C interface is what its header says."""

import ctypes
import re
from pathlib import Path

import pytest

from keras_ring._runtime import meeting

HEADER = Path(__file__).parents[2] / "csrc/capi/keras_ring.h"
C_TYPES = {
    "int32_t": ctypes.c_int32,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
}
POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


def members(struct):
    """Returns the names and types of a struct of the header, in order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    body = re.search(
        rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.DOTALL
    )[1]
    found = []
    for line in filter(None, map(str.strip, body.split(";"))):
        function = re.match(r".*?\(\*(\w+)\)", line, re.DOTALL)
        if function:
            found.append((function[1], "pointer"))
            continue
        of_type, name = re.fullmatch(r"(.*?)(\w+)", line, re.DOTALL).groups()
        of_type = of_type.strip()
        found.append((name, "pointer" if "*" in of_type else of_type))
    return found


@pytest.mark.parametrize(
    ("struct", "ours"),
    [
        ("KrTensorSpec", meeting._TensorSpec),
        ("KrRequestSpec", meeting._RequestSpec),
        ("KrOperation", meeting._Operation),
    ],
)
def test_structs_are_those_of_the_header(struct, ours):
    wanted = members(struct)
    assert [name for name, _ in ours._fields_] == [name for name, _ in wanted]
    for (name, of_type), (_, c_type) in zip(ours._fields_, wanted, strict=True):
        if c_type == "pointer":
            assert ctypes.sizeof(of_type) == POINTER_BYTES, name
        else:
            assert of_type is C_TYPES[c_type], name


@pytest.mark.parametrize(
    ("enum", "name", "value"),
    [
        ("KrKind", "KR_ALLREDUCE", meeting._ALLREDUCE),
        ("KrKind", "KR_BROADCAST", meeting._BROADCAST),
        ("KrReduceOp", "KR_MIN", meeting._MIN),
        ("KrReduceOp", "KR_MAX", meeting._MAX),
    ],
)
def test_numbers_are_those_of_the_header(enum, name, value):
    body = re.search(
        rf"typedef enum {enum} {{(.*?)}} {enum};", HEADER.read_text(), re.DOTALL
    )[1]
    # They count from 0.
    assert re.findall(r"\bKR_\w+", body).index(name) == value
