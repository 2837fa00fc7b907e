"""Encodes the values of a test in Avro's binary format; a test needs no schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from helios.errors import InputError, near_miss
from helios.testing.diff import hidden

__tracebackhide__ = hidden

HEADER = b"\0\0\0\0\1"
"""The header that registry clients write before each value: the byte 0, and the schema id (1 in a test)."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS = {
    "timestamp-millis": 1000, "timestamp-micros": 1, "local-timestamp-millis": 1000, "local-timestamp-micros": 1,
}  # fmt: skip
"""The microseconds of one unit of a logical type."""
PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,), "int": (int, date), "long": (int, datetime, str), "float": (float, int),
    "double": (float, int), "string": (str,), "bytes": (bytes, Decimal, int, float, str), "fixed": (bytes, Decimal),
    "enum": (str,), "array": (list, tuple), "map": (Mapping,), "record": (Mapping,), "error": (Mapping,),
}  # fmt: skip
"""The Python types of each Avro type. The type of a value selects the branch of a union."""
INTS = range(-(2**31), 2**31)
"""The values of an int."""


def _fits_later_branch(value: Any, branch: Mapping[str, Any]) -> bool:
    """True if a later branch of a union fits a value better, although `branch` could write the value."""
    kind, logical = str(branch["type"]), str(branch.get("logicalType", ""))
    if isinstance(value, bool):
        return kind != "boolean"
    if kind == "int":  # a number beyond an int; a datetime for a date
        return isinstance(value, datetime) or (isinstance(value, int) and value not in INTS)
    if kind == "long" and isinstance(value, str):
        return "timestamp" not in logical
    return kind == "bytes" and not isinstance(value, bytes) and logical != "decimal"


class Misfit(ValueError):
    """A value does not fit its schema. The message says where and why."""


def encoded(value: Mapping[str, Any], schema: str, topic: str) -> bytes:
    """Encodes a value in Avro's binary format, without a header.

    Args:
        value: The fields. A missing field gets the schema's default.
        schema: The schema of a record, as JSON.
        topic: The topic, for error messages.

    Raises:
        InputError: The value does not fit the schema; the message suggests the most similar name.

    Examples:
        >>> order = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
        >>> encoded({"id": 7}, order, "orders")
        b'\\x0e'
    """
    from pyiceberg.avro.encoder import BinaryEncoder

    stream = io.BytesIO()
    try:
        _Writer(BinaryEncoder(stream)).write(value, json.loads(schema), "")
    except Misfit as error:
        raise InputError(f"{topic}: {error}", fix="correct the value, or give raw bytes.") from error
    return stream.getvalue()


class _Writer:
    """Writes values of one schema with PyIceberg's encoder."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self._named: dict[str, Any] = {}

    def write(self, value: Any, schema: Any, path: str) -> None:
        """Writes a value; `path` is the dotted path of its field, for errors."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            index = self._branch(value, schema, path)
            self._encoder.write_int(index)
            self.write(value, schema[index], path)
            return
        kind = schema["type"]
        if kind in ("record", "error"):
            self._record(value, schema, path)
        elif kind in ("array", "map"):
            self._collection(value, schema, path)
        elif kind == "null":
            _require(value is None, f"{path} is {value!r}, and the schema has null")
        else:
            _require(isinstance(value, PYTHON_TYPES[kind]), f"{path} is {value!r}, and the schema has {_shown(schema)}")
            self._primitive(value, kind, schema, path)

    def _resolved(self, schema: Any) -> Any:
        """Returns a schema as a mapping, or a union as a list. Replaces the name of a type by the type's schema."""
        if isinstance(schema, str):
            return self._named.get(schema) or {"type": schema}
        if isinstance(schema, list):
            return schema
        if isinstance(schema["type"], (dict, list)):
            return self._resolved(schema["type"])
        if schema["type"] in self._named:
            return self._named[schema["type"]]
        if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
            space = f"{schema['namespace']}." if schema.get("namespace") else ""
            self._named |= {schema["name"]: schema, f"{space}{schema['name']}": schema}
        return schema

    def _branch(self, value: Any, union: list[Any], path: str) -> int:
        branches = [self._resolved(branch) for branch in union]
        for index, branch in enumerate(branches):
            kind = branch["type"]
            fits = value is None if kind == "null" else isinstance(value, PYTHON_TYPES[kind])
            if fits and not _fits_later_branch(value, branch):
                return index
        kinds = " or ".join(branch["type"] for branch in branches)
        raise Misfit(f"{path} is {value!r}, and the schema has {kinds}")

    def _record(self, value: Any, schema: Mapping[str, Any], path: str) -> None:
        _require(isinstance(value, Mapping), f"{path or 'the value'} is {value!r}, and the schema has a record")
        fields = {field["name"]: field for field in schema["fields"]}
        unknown = next((name for name in value if name not in fields), None)
        if unknown is not None:
            raise Misfit(f"the schema has no field {_field_path(path, unknown)!r}. {near_miss(str(unknown), fields)}")
        for name, field in fields.items():
            has_value = name in value or "default" in field
            _require(has_value, f"the field {_field_path(path, name)!r} is missing, and has no default")
            field_value = value[name] if name in value else _default(field)
            self.write(field_value, field["type"], _field_path(path, name))

    def _collection(self, value: Any, schema: Mapping[str, Any], path: str) -> None:
        kind = schema["type"]
        _require(isinstance(value, PYTHON_TYPES[kind]), f"{path} is {value!r}, and the schema has {kind}")
        if value:
            self._encoder.write_int(len(value))
        for item in value:
            if kind == "map":
                self._encoder.write_utf8(item)
                self.write(value[item], schema["values"], _field_path(path, item))
            else:
                self.write(item, schema["items"], path)
        self._encoder.write_int(0)

    def _primitive(self, value: Any, kind: str, schema: Mapping[str, Any], path: str) -> None:
        logical, encoder = str(schema.get("logicalType") or ""), self._encoder
        if kind == "boolean":
            encoder.write_boolean(value)
        elif kind in ("int", "long"):
            encoder.write_int(_integer(value, 32 if kind == "int" else 64, logical, path))
        elif kind in ("float", "double"):
            getattr(encoder, f"write_{kind}")(value)
        elif kind == "string":
            encoder.write_utf8(value)
        elif kind == "enum":
            symbols = schema["symbols"]
            _require(value in symbols, f"{path} is {value!r}, and the schema has {', '.join(symbols)}")
            encoder.write_int(symbols.index(value))
        else:
            content = _decimal(value, schema, path) if logical == "decimal" else value
            _require(isinstance(content, bytes), f"{path} is {value!r}, and the schema has {kind}")
            if kind == "fixed":
                _require(len(content) == schema["size"], f"{path} has {len(content)} bytes, not {schema['size']}")
                encoder.write(content)
            else:
                encoder.write_bytes(content)


def _default(field: Mapping[str, Any]) -> Any:
    """The default of a field; in Avro's JSON, bytes are text with one character per byte."""
    kind, default = field["type"], field["default"]
    kind = kind[0] if isinstance(kind, list) else kind
    kind = kind["type"] if isinstance(kind, Mapping) else kind
    return default.encode("latin-1") if kind in ("bytes", "fixed") and isinstance(default, str) else default


def _integer(value: Any, bits: int, logical: str, path: str) -> int:
    """Returns a whole number; for a date or a time, the number that Avro stores."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Misfit(f"{path} is {value!r}, and the schema has {logical or 'long'}") from None
    if isinstance(value, datetime):
        unit = MICROSECONDS.get(logical)
        _require(unit is not None, f"{path} is a time, and the schema has {logical or 'a number'}")
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=unit or 1)
    if isinstance(value, date):
        _require(logical == "date", f"{path} is a date, and the schema has {logical or 'a number'}")
        return (value - EPOCH.date()).days
    _require(not isinstance(value, bool), f"{path} is {value!r}, and the schema has a number")
    _require(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1), f"{path} is {value}, which has more than {bits} bits")
    return int(value)


def _decimal(value: Any, schema: Mapping[str, Any], path: str) -> Any:
    """Returns the bytes of a decimal's unscaled number, in the size of a fixed schema. Bytes stay unchanged."""
    if isinstance(value, bytes):
        return value
    try:
        unscaled = Decimal(str(value)).scaleb(schema.get("scale", 0), Context(prec=200))
        number = int(unscaled)
        exact = number == unscaled
    except ArithmeticError:
        exact, number = False, 0
    digits = f"decimal({schema['precision']},{schema.get('scale', 0)})"
    _require(
        exact and len(str(abs(number))) <= schema["precision"], f"{path} is {value!r}, and the schema has {digits}"
    )
    size = schema["size"] if schema["type"] == "fixed" else (number.bit_length() + 8) // 8
    return number.to_bytes(size, "big", signed=True)


def _require(fits: bool, why: str) -> None:
    if not fits:
        raise Misfit(why)


def _shown(schema: Mapping[str, Any]) -> str:
    return str(schema.get("logicalType") or schema["type"])


def _field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)
