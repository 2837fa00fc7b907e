"""Converts literals of Spark SQL to terms of the columnar engine, and to the type of a compared column."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Context, Decimal

from helios.native.program import NotNative, Term
from helios.plan.typing.decimals import number_type
from helios.plan.typing.scope import Node
from helios.plan.typing.types import parse_type

INTEGERS = ("int", "bigint")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?")
_CASTS = {"DATE": "date", "TIMESTAMPTZ": "timestamp", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz"}


def literal(node: Node) -> Term:
    """The term of a literal. Raises `NotNative` for a literal that the engine does not support."""
    name = type(node).__name__
    if name == "Null":
        return Term("lit", "void")
    if name == "Boolean":
        return Term("lit", "boolean", text="true" if node.this else "false")
    negative = name == "Neg"
    inner = node.this if negative else node
    if type(inner).__name__ == "Literal" and inner.is_string and not negative:
        return Term("lit", "string", text=_without_backslash(inner.this))
    if type(inner).__name__ == "Literal" and not inner.is_string:
        return _number(f"-{inner.this}" if negative else inner.this)
    raise NotNative(f"{node.sql('spark')} is a literal that the native engine does not support")


def _without_backslash(text: str) -> str:
    """Returns the text; refuses a backslash, because Spark's parser and sqlglot may read its escapes differently."""
    if "\\" in text:
        raise NotNative("a text has a backslash")
    return text


def _number(text: str) -> Term:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        raise NotNative(f"{text} is a number that the native engine does not support")
    return Term("lit", str(number_type(text)), text=text)


def typed_literal(node: Node) -> Term | None:
    """The term of a literal that has a type, such as `DATE '2026-01-01'` or `5L`; None for any other cast."""
    if type(node.this).__name__ != "Literal":
        return None
    to, text = str(getattr(node.to.this, "name", "")), node.this.this
    if node.this.is_string:
        kind = _CASTS.get(to)
        return date_or_time(text, kind) if kind is not None else None
    if to == "BIGINT" and text.isdigit() and int(text) < 2**63:
        return Term("lit", "bigint", text=text)
    return None


def date_or_time(text: str, kind: str) -> Term | None:
    """The term of a date or a timestamp in ISO 8601; None for other forms, some of which Spark accepts."""
    form = _DAY if kind == "date" else _MOMENT
    if not form.fullmatch(text):
        return None
    try:
        parsed = date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return None
    return Term("lit", kind, text=parsed.isoformat())


def converted(value: Term, kind: str) -> Term | None:
    """A literal converted to the type of the column that it is compared with.

    None if the result of the comparison might differ from Spark's: the number would not keep its value, or Spark would
    cast the column instead.
    """
    if value.kind == kind:
        return value
    if value.kind == "void":
        return Term("lit", kind)
    text = value.text
    assert text is not None
    if value.kind == "string":
        return date_or_time(text, kind) if kind in ("date", "timestamp", "timestamp_ntz") else None
    if value.kind == "int" and kind in ("bigint", "double"):
        return Term("lit", kind, text=text)
    if value.kind.startswith("decimal") and kind == "double":
        return Term("lit", "double", text=repr(float(Decimal(text))))
    if kind.startswith("decimal") and (value.kind in INTEGERS or value.kind.startswith("decimal")):
        return _decimal(Decimal(text), kind)
    return None


def _decimal(value: Decimal, kind: str) -> Term | None:
    """The term of a number in a decimal type; None if the type cannot represent the number exactly."""
    precision, scale = parse_type(kind).numbers
    unscaled = value.scaleb(scale, Context(prec=200))  # the default context keeps 28 digits of 38
    if unscaled != unscaled.to_integral_value() or len(str(abs(int(unscaled)))) > precision:
        return None
    return Term("lit", kind, text=f"{int(unscaled)}E-{scale}")
