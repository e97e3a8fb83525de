"""Lazily decoded trace requests: spans stay bytes until they are read.

The messages declared here have the field numbers of OTLP's ``trace.proto``, with the unread parts declared as
bytes. Protobuf keeps undeclared fields as unknown fields and writes them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "trajectory_guard.wire"
_MANY: Final = _FIELD.LABEL_REPEATED
_ONE: Final = _FIELD.LABEL_OPTIONAL
_WRITTEN_BACK: Final = frozenset(("resource", "scope"))
"""Messages that are read as bytes: without presence of their own, one that is there but empty would get lost."""

_MESSAGES: Final[Mapping[str, tuple[tuple[str, int, str, Any], ...]]] = {
    "Request": (("resource_spans", 1, "ResourceSpans", _MANY),),
    "ResourceSpans": (("resource", 1, "bytes", _ONE), ("scope_spans", 2, "ScopeSpans", _MANY)),
    "ScopeSpans": (("scope", 1, "bytes", _ONE), ("spans", 2, "bytes", _MANY)),
    "SpanHeader": (
        ("trace_id", 1, "bytes", _ONE),
        ("span_id", 2, "bytes", _ONE),
        ("parent_span_id", 4, "bytes", _ONE),
        ("attributes", 9, "SpanHeader.Attribute", _MANY),
    ),
    "SpanHeader.Attribute": (("key", 1, "string", _ONE), ("value", 2, "bytes", _ONE)),
    "Metric": (
        ("gauge", 5, "Points", _ONE),
        ("sum", 7, "Points", _ONE),
        ("histogram", 9, "Points", _ONE),
        ("exponential_histogram", 10, "Points", _ONE),
        ("summary", 11, "Points", _ONE),
    ),
    "Points": (("data_points", 1, "bytes", _MANY),),
}
_SCALARS: Final = {"bytes": _FIELD.TYPE_BYTES, "string": _FIELD.TYPE_STRING}


def _declare() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = _add(file, message_name)
        for name, number, kind, label in fields:
            field = message.field.add(name=name, number=number, label=label)
            field.type = _SCALARS.get(kind, _FIELD.TYPE_MESSAGE)
            if name in _WRITTEN_BACK:
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")
            if kind not in _SCALARS:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add(file: descriptor_pb2.FileDescriptorProto, name: str) -> descriptor_pb2.DescriptorProto:
    outer, dot, inner = name.partition(".")
    if not dot:
        return file.message_type.add(name=name)
    around = next(message for message in file.message_type if message.name == outer)
    entry = around.nested_type.add(name=inner)
    entry.options.map_entry = True  # a KeyValue has the form of a map's entry, and the keys of a map are read in C
    return entry


_POOL: Final = _declare()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Request: Final = _class("Request")
"""``ExportTraceServiceRequest`` whose resources, scopes and spans are bytes. Requests of metrics and logs have the same
structure and the same numbers."""
Metric: Final = _class("Metric")
"""A ``Metric`` whose data points are bytes."""
SpanHeader: Final = _class("SpanHeader")
"""A ``Span``'s ids, and its attributes as a mapping whose values are left undecoded."""
