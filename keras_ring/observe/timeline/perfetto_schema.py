"""The messages of a Perfetto trace that are used here.

Perfetto publishes them in protos/perfetto/trace. Their classes are made at run
time by protobuf, so that no compiler is needed. Fields and numbers are the
published ones; fields that are not listed here are ignored.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_PACKAGE = "perfetto.protos"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "uint64": _Field.TYPE_UINT64,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "int32": _Field.TYPE_INT32,
    "fixed64": _Field.TYPE_FIXED64,
    "string": _Field.TYPE_STRING,
}

# Type and number by message and field. A type in brackets is repeated; a type
# that is not listed above is a message. Enumerations have the same encoding as
# integers.
_MESSAGES: dict[str, dict[str, tuple[str, int]]] = {
    "Trace": {"packet": ("[TracePacket]", 1)},
    "TracePacket": {
        "timestamp": ("uint64", 8),
        "trusted_packet_sequence_id": ("uint32", 10),
        "track_event": ("TrackEvent", 11),
        "track_descriptor": ("TrackDescriptor", 60),
    },
    "TrackDescriptor": {
        "uuid": ("uint64", 1),
        "name": ("string", 2),
        "process": ("ProcessDescriptor", 3),
        "parent_uuid": ("uint64", 5),
        "counter": ("CounterDescriptor", 8),
        "child_ordering": ("int32", 11),
        "sibling_order_rank": ("int32", 12),
    },
    "ProcessDescriptor": {
        "pid": ("int32", 1),
        "process_name": ("string", 6),
        "process_labels": ("[string]", 8),
    },
    "CounterDescriptor": {"unit_name": ("string", 6)},
    "TrackEvent": {
        "debug_annotations": ("[DebugAnnotation]", 4),
        "type": ("int32", 9),
        "track_uuid": ("uint64", 11),
        "categories": ("[string]", 22),
        "name": ("string", 23),
        "counter_value": ("int64", 30),
        "flow_ids": ("[fixed64]", 47),
        "terminating_flow_ids": ("[fixed64]", 48),
    },
    "DebugAnnotation": {
        "int_value": ("int64", 4),
        "string_value": ("string", 6),
        "name": ("string", 10),
    },
}

# Values of TrackEvent.Type.
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
# Value in TrackDescriptor that orders children by their ranks.
EXPLICIT_ORDER = 3


@functools.cache
def messages() -> dict[str, Any]:
    """Returns the classes of the messages, by their names."""
    file = descriptor_pb2.FileDescriptorProto(
        name="keras_ring/perfetto.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (kind, number) in fields.items():
            message.field.append(_field(field, kind, number))
    # Perfetto's own package may have these names in the default pool.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        )
        for name in _MESSAGES
    }


def _field(name: str, kind: str, number: int) -> Any:
    single = kind.strip("[]")
    field = _Field(
        name=name,
        number=number,
        label=(
            _Field.LABEL_OPTIONAL if single == kind else _Field.LABEL_REPEATED
        ),
    )
    if single in _TYPES:
        field.type = _TYPES[single]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{single}"
    return field
