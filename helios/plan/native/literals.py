"""Literals of Spark SQL as terms, and the types that a comparison with a column gives them."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal

from helios.native.program import NotNative, Term
from helios.plan.typing.decimals import number
from helios.plan.typing.scope import Node

WHOLE = ("int", "bigint")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?")
_CASTS = {"DATE": "date", "TIMESTAMPTZ": "timestamp", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz"}


def literal(node: Node) -> Term:
    """The term of a literal.

    Raises:
        NotNative: It is none that is known.
    """
    name = type(node).__name__
    if name == "Null":
        return Term("lit", "void")
    if name == "Boolean":
        return Term("lit", "boolean", text="true" if node.this else "false")
    negative = name == "Neg"
    inner = node.this if negative else node
    if type(inner).__name__ == "Literal" and inner.is_string and not negative:
        return Term("lit", "string", text=_plain(inner.this))
    if type(inner).__name__ == "Literal" and not inner.is_string:
        return _number(f"-{inner.this}" if negative else inner.this)
    raise NotNative(f"{node.sql('spark')} is a literal that the native engine does not support")


def _plain(text: str) -> str:
    """A text without escapes, which the two parsers may read differently."""
    if "\\" in text:
        raise NotNative("a text has a backslash")
    return text


def _number(text: str) -> Term:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        raise NotNative(f"{text} is a number that the native engine does not support")
    return Term("lit", str(number(text)), text=text)


def typed(node: Node) -> Term | None:
    """A literal with a type, such as `DATE '2026-01-01'` and `5L`; None for any other cast."""
    if type(node.this).__name__ != "Literal":
        return None
    to, text = str(getattr(node.to.this, "name", "")), node.this.this
    if node.this.is_string:
        kind = _CASTS.get(to)
        return moment(text, kind) if kind is not None else None
    if to == "BIGINT" and text.isdigit() and int(text) < 2**63:
        return Term("lit", "bigint", text=text)
    return None


def moment(text: str, kind: str) -> Term | None:
    """A date or a time in the plain form; None for any other form, which Spark may read, too."""
    form = _DAY if kind == "date" else _MOMENT
    if not form.fullmatch(text):
        return None
    try:
        parsed = date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return None
    return Term("lit", kind, text=parsed.isoformat())


def exactly(value: Term, kind: str) -> Term | None:
    """A literal in the type of the column that it is compared with; None if Spark casts the column instead.

    Only where the result is that of Spark's own coercion: of numbers because the value stays the same.
    """
    if value.kind == kind:
        return value
    if value.kind == "void":
        return Term("lit", kind)
    text = value.text
    assert text is not None
    if value.kind == "string":
        return moment(text, kind) if kind in ("date", "timestamp", "timestamp_ntz") else None
    if value.kind == "int" and kind in ("bigint", "double"):
        return Term("lit", kind, text=text)
    if value.kind.startswith("decimal") and kind == "double":
        return Term("lit", "double", text=repr(float(Decimal(text))))
    if kind.startswith("decimal") and (value.kind in WHOLE or value.kind.startswith("decimal")):
        return _decimal(Decimal(text), kind)
    return None


def _decimal(value: Decimal, kind: str) -> Term | None:
    precision, scale = map(int, kind[len("decimal(") : -1].split(","))
    shifted = value.scaleb(scale)
    if shifted != shifted.to_integral_value() or len(str(abs(int(shifted)))) > precision:
        return None
    return Term("lit", kind, text=f"{int(shifted)}E-{scale}")
