"""What the body of a delivery must be: JSON that fits the declared columns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from helios.errors import near_miss
from helios.model.webhook import ID, RECEIVED
from helios.plan.typing.schema import Schema
from helios.plan.typing.types import SparkType
from helios.webhooks.signatures import Refused

WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Bits of the types of whole numbers."""


def verify(body: bytes, schema: Schema | None, extra: str = "fail") -> None:
    """Refuses a body that is no JSON, or that does not fit the declared columns.

    Args:
        body: The body.
        schema: The declared columns; None for any JSON.
        extra: What happens to fields that are not declared: "fail" refuses the body, "add" takes them if they are not
            nested, "ignore" takes all.

    Raises:
        Refused: With status 422, and the reason.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_float=Decimal, parse_constant=_no_json, object_pairs_hook=_once)
    except RecursionError:
        raise Refused(422, "the body is nested too deeply") from None
    except ValueError as error:  # a UnicodeDecodeError too
        raise Refused(422, f"the body is no JSON: {error}") from None
    if schema is None:
        return
    if not isinstance(value, dict):
        raise Refused(422, "the body must be a JSON object, as the source declares columns")
    for name in value:
        if name in (ID, RECEIVED):
            raise Refused(422, f"{name} is a name of Helios's own")
        if extra == "fail" and name not in schema.names:
            raise Refused(422, f"{name} is not declared. {near_miss(name, schema.names)}".rstrip())
    for column in schema.columns:
        found = value.get(column.name)
        if found is None and not column.nullable:
            raise Refused(422, f"{column.name} is missing, or null")
        if found is not None and not fits(found, column.kind, extra == "ignore"):
            raise Refused(422, f"{column.name} is no {column.type}: {json.dumps(found, default=str)[:100]}")


def line_of(delivery: str, at: datetime, body: bytes, *, columns: bool) -> bytes:
    """A delivery as a line of a segment, in which the body stands as it came.

    Args:
        delivery: Its id.
        at: When it came.
        body: The body, verified.
        columns: Whether its fields are columns; otherwise it is one column, `body`.

    Examples:
        >>> line_of("m1", datetime(2026, 1, 1, tzinfo=UTC), b'{"id": 1.10}', columns=True)
        b'{"_webhook_id": "m1", "_webhook_received_at": "2026-01-01T00:00:00.000000Z", "id": 1.10}'
    """
    received = at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = json.dumps({ID: delivery, RECEIVED: received})[:-1].encode()
    if not columns:
        return head + b', "body": ' + one_line(body).strip() + b"}"
    fields = one_line(body).strip()[1:].lstrip()
    return head + (b"}" if fields == b"}" else b", " + fields)


def one_line(body: bytes) -> bytes:
    """JSON on one line, and otherwise as it came: line ends lie between its tokens only.

    Examples:
        >>> one_line(b'{\\n  "id": 1.10\\n}')
        b'{   "id": 1.10 }'
    """
    return re.sub(rb"[\r\n]", b" ", body)


def fits(value: Any, kind: SparkType, more: bool = False) -> bool:
    """Whether a JSON value that is not null can be stored as a type without a change.

    Args:
        value: The value, with fractions as `Decimal`.
        kind: The type.
        more: Whether a struct may have fields that the type does not have.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> [fits(value, parse_type("int")) for value in (5, 2**31, True, "5")]
        [True, False, False, False]
        >>> fits({"a": [1, 2]}, parse_type("struct<a:array<bigint>>"))
        True
    """
    if kind.name in WHOLE:
        limit = 2 ** (WHOLE[kind.name] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if kind.name in ("array", "map", "struct"):
        return _nested(value, kind, more)
    test = SCALARS.get(kind.name)
    return test is None or test(value, kind)


def _nested(value: Any, kind: SparkType, more: bool) -> bool:
    if kind.name == "array":
        return isinstance(value, list) and all(one is None or fits(one, kind.parts[0], more) for one in value)
    if not isinstance(value, dict):
        return False
    if kind.name == "map":
        return all(one is None or fits(one, kind.parts[1], more) for one in value.values())
    if not more and not set(value) <= set(kind.fields):
        return False
    given = ((value.get(name), part) for name, part in zip(kind.fields, kind.parts, strict=True))
    return all(one is None or fits(one, part, more) for one, part in given)


def _number(value: Any, kind: SparkType) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _decimal(value: Any, kind: SparkType) -> bool:
    if not _number(value, kind):
        return False
    precision, scale = kind.numbers if len(kind.numbers) == 2 else (*(kind.numbers or (10,)), 0)
    _, digits, exponent = Decimal(value).normalize().as_tuple()
    assert isinstance(exponent, int)  # JSON has neither NaN nor infinity
    return -exponent <= scale and len(digits) + exponent <= precision - scale


def _date(value: Any, kind: SparkType) -> bool:
    return isinstance(value, str) and _parses(date.fromisoformat, value)


def _time(value: Any, kind: SparkType) -> bool:
    return isinstance(value, str) and _parses(datetime.fromisoformat, value)


def _base64(value: Any, kind: SparkType) -> bool:
    return isinstance(value, str) and _parses(lambda text: base64.b64decode(text, validate=True), value)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


SCALARS: dict[str, Callable[[Any, SparkType], bool]] = {
    "float": _number,
    "double": _number,
    "decimal": _decimal,
    "boolean": lambda value, kind: isinstance(value, bool),
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _time,
    "binary": _base64,
}
"""How values of these types come in JSON; any value can be stored as a string, as its text."""


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice")
    return found
