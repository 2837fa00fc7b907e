"""Checks the body of a delivery: it must be JSON that fits the declared columns, and that Spark reads without changing
values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from helios.errors import near_miss
from helios.plan.typing.schema import Schema
from helios.plan.typing.types import SparkType, struct
from helios.sources.webhook.declare import ID, RECEIVED
from helios.sources.webhook.signatures import Refused
from helios.sources.webhook.values import Real, by_column, cut_to_micros, fits, has_excess_digits, preview

DEEPEST = 400
"""The maximum depth of nested arrays and objects. Spark's JSON parser accepts a depth of 1000."""

LONGEST_NUMBER, LONGEST_NAME = 1000, 50_000
"""The maximum number of characters of a number, and of a name: the limits of Spark's JSON parser."""

RESERVED = ("_helios", "__helios")
"""The prefixes of the reader's own columns. The name of another column must not begin with them."""

ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL)
"""An escape sequence in JSON. The group matches half of a surrogate pair; UTF-8 cannot encode half of a pair."""

WHITE_SPACE = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


def verified(body: bytes, schema: Schema | None, extra: str = "fail", fraction: str = "refuse") -> bytes:
    """Checks that a body is JSON and fits the declared columns, and returns the body to store.

    Args:
        schema: The declared columns; None to accept any JSON.
        extra: The policy for fields that are not declared. "fail" refuses the body. "add" accepts a field if a column
            can have the field's name, and if the value is not a number too large for a double. "ignore" accepts all
            fields except fields with the names of Helios's own columns.
        fraction: The policy for timestamps with more than six digits in the fraction of a second: "refuse" or
            "truncate".

    Returns:
        The body. With `fraction="truncate"`, the fractions of declared timestamps are cut to six digits.

    Raises:
        Refused: The body is not JSON, or does not fit the columns. The status is 422.
    """
    value = _parsed(body)
    if schema is None:
        return body
    if not isinstance(value, dict):
        raise Refused(422, "the body must be a JSON object, because the source declares columns")
    truncated = _truncated(body, schema) if fraction == "truncate" else body
    if truncated != body:
        body, value = truncated, _parsed(truncated)
    fields = by_column(value, schema.names)
    if fields is None:
        raise Refused(422, "a column occurs twice: names must differ in more than their case")
    _refuse_names(value, schema, extra)
    for column in schema.columns:
        field = fields.get(column.name)
        if field is None and not column.nullable:
            raise Refused(422, f"{column.name} is missing, or null")
        if field is not None and not fits(field, column.kind, extra == "ignore"):
            has_more_digits = has_excess_digits(field, column.kind)
            detail = " (the fraction of a second has more than six digits)" if has_more_digits else ""
            raise Refused(422, f"{column.name} is not of type {column.type}: {preview(field)}{detail}")
    return body


def _parsed(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
        if any(escape[1] for escape in ESCAPE.finditer(text)):
            raise ValueError("a text holds half of a surrogate pair")
        value = json.loads(
            text, parse_int=_whole, parse_float=_real, parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
    except RecursionError:
        raise Refused(422, "the body is nested too deeply") from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise Refused(422, f"the body is not JSON: {error}") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [item for parent in level for item in _items(parent)]
        if not level:
            break
    if any(isinstance(item, dict | list) for item in level):
        raise Refused(422, "the body is nested too deeply")
    return value


def _items(value: Any) -> Iterable[Any]:
    """The values in an object or an array; empty for any other value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse_names(value: dict[str, Any], schema: Schema, extra: str) -> None:
    seen = set()
    for name, field in value.items():
        if name.lower() in (ID, RECEIVED):
            raise Refused(422, f"{name} is reserved for Helios's own column")
        if extra == "ignore" or schema.get(name) is not None:
            continue
        if extra == "fail":
            raise Refused(422, f"{name[:100]} is not declared. {near_miss(name[:100], schema.names)}".rstrip())
        if not name.strip() or name.lower().startswith(RESERVED):
            raise Refused(422, f"{name[:100]!r} cannot be a column")
        if name.lower() in seen:
            raise Refused(422, f"{name[:100]} occurs twice: names must differ in more than their case")
        seen.add(name.lower())
        if isinstance(field, int | Real) and not isinstance(field, bool) and not fits(field, SparkType("double")):
            raise Refused(422, f"{name[:100]} is too large a number for a column: {preview(field)}")


def _truncated(body: bytes, schema: Schema) -> bytes:
    """Cuts the fractions of all declared timestamps in a body to six digits. `body` must be valid JSON.

    Examples:
        >>> from helios.plan.typing.schema import from_ddl
        >>> _truncated(b'{"at": "2026-01-01T10:00:00.123456789Z", "s":  1.10}', from_ddl("at timestamp, s string"))
        b'{"at": "2026-01-01T10:00:00.123456Z", "s":  1.10}'
    """
    text, pieces, copied_up_to = body.decode("utf-8"), [], 0
    row = struct((column.name, column.kind) for column in schema.columns)
    for start, end, value in _timestamps(text, _after_space(text, 0), row):
        if cut_to_micros(value) != value:
            pieces += [text[copied_up_to:start], json.dumps(cut_to_micros(value))]
            copied_up_to = end
    return ("".join(pieces) + text[copied_up_to:]).encode() if pieces else body


def _timestamps(text: str, offset: int, kind: SparkType | None) -> Iterator[tuple[int, int, str]]:
    """Finds the timestamps in a JSON value of a type, and yields the start, the end and the text of each timestamp.

    Args:
        offset: The offset at which the JSON value starts.
        kind: The declared type of the value; None if the value is not declared.
    """
    if text[offset] == '"' and kind is not None and kind.name.startswith("timestamp"):
        value, end = DECODER.raw_decode(text, offset)
        yield offset, end, value
    elif text[offset] in "[{" and kind is not None and kind.name in ("array", "map", "struct"):
        closing = "]" if text[offset] == "[" else "}"
        offset = _after_space(text, offset + 1)
        while text[offset] != closing:
            part: SparkType | None = kind.parts[-1]
            if closing == "}":
                name, offset = DECODER.raw_decode(text, offset)
                part = kind.field(name) if kind.name == "struct" else part
                colon = _after_space(text, offset)
                offset = _after_space(text, colon + 1)
            yield from _timestamps(text, offset, part)
            _, offset = DECODER.raw_decode(text, offset)
            offset = _after_space(text, offset)
            if text[offset] == ",":
                offset = _after_space(text, offset + 1)


def _after_space(text: str, offset: int) -> int:
    """The offset of the first character that is not white space, at `offset` or after."""
    match = WHITE_SPACE.match(text, offset)
    return match.end() if match else offset


def line_of(delivery_id: str, received_at: datetime, body: bytes, *, columns: bool) -> bytes:
    """A delivery as a line of a segment: a file of stored deliveries, with a line of JSON for each delivery.

    Line breaks in the body become spaces, and the rest of the text stays as it is.

    Args:
        body: The verified body.
        columns: Whether each field of the body becomes a column; otherwise the whole body is the column `body`.

    Examples:
        >>> line_of("m1", datetime(2026, 1, 1, tzinfo=UTC), b'{"id": 1.10}', columns=True)
        b'{"_webhook_id": "m1", "_webhook_received_at": "2026-01-01T00:00:00.000000Z", "id": 1.10}'
    """
    received = received_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = json.dumps({ID: delivery_id, RECEIVED: received})[:-1].encode()
    if not columns:
        return head + b', "body": ' + one_line(body).strip() + b"}"
    fields = one_line(body).strip()[1:].lstrip()
    return head + (b"}" if fields == b"}" else b", " + fields)


def one_line(body: bytes) -> bytes:
    """Puts JSON on one line: replaces each line break by a space. Valid JSON has line breaks only between tokens.

    Examples:
        >>> one_line(b'{\\n  "id": 1.10\\n}')
        b'{   "id": 1.10 }'
    """
    return re.sub(rb"[\r\n]", b" ", body)


def _checked_length(text: str) -> str:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER:,} characters")
    return text


def _whole(text: str) -> int:
    return int(_checked_length(text))


def _real(text: str) -> Real:
    return Real(_checked_length(text))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")  # Python's parser would accept NaN and the infinities


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    if any(len(name) > LONGEST_NAME for name in fields):
        raise ValueError(f"a name has more than {LONGEST_NAME:,} characters")
    return fields
