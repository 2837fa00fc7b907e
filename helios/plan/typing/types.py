"""Parses Spark SQL types such as `decimal(10,2)` and `struct<a:int>`, and finds common types.

A variable that holds a `SparkType` is usually called `kind`, because `type` is a built-in of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

_ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "dec": "decimal",
    "numeric": "decimal", "character": "char", "timestamp_ltz": "timestamp",
}  # fmt: skip
_PLAIN = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz", "void", "variant", "unknown",
)  # fmt: skip
_NESTED = ("array", "map", "struct")
_SIZED = ("decimal", "char", "varchar", "time")
KNOWN = (*_PLAIN, *_SIZED, *_NESTED, "interval", *_ALIASES)

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
NUMERIC = (*INTEGRAL, "float", "double", "decimal")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The precision of the decimal to which Spark converts each integer type (DecimalType.forType)."""
MAX_PRECISION = 38

# A quoted name, a text, a word, or another character.
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(\S))")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class SparkType:
    """A type of Spark SQL.

    Attributes:
        name: The name, such as `decimal` or `array`; `unknown` if the type is known only at run time.
        numbers: Precision and scale of a decimal; the length of char and varchar; the precision of a time.
        parts: The types of an array's element, of a map's key and value, or of a struct's fields.
        fields: The names of a struct's fields.
    """

    name: str
    numbers: tuple[int, ...] = ()
    parts: tuple[SparkType, ...] = ()
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.name == "struct":
            return f"struct<{','.join(f'{quoted(n)}:{t}' for n, t in zip(self.fields, self.parts, strict=True))}>"
        if self.parts:
            return f"{self.name}<{','.join(map(str, self.parts))}>"
        return f"{self.name}({','.join(map(str, self.numbers))})" if self.numbers else self.name

    @property
    def certain(self) -> bool:
        """True if the type and all its parts are known."""
        return self.name != "unknown" and all(part.certain for part in self.parts)

    def field(self, name: str) -> SparkType | None:
        """The type of a struct's field, found without regard to case; None if there is no such field."""
        return next((t for n, t in zip(self.fields, self.parts, strict=True) if n.lower() == name.lower()), None)


class TypeProblem(ValueError):
    """A type or a list of columns that cannot be parsed. `unknown` is the name of an unknown type, or None."""

    def __init__(self, message: str, unknown: str | None = None) -> None:
        super().__init__(message)
        self.unknown = unknown


@dataclass(frozen=True)
class DeclaredColumn:
    """One column of a DDL text."""

    name: str
    type: SparkType
    nullable: bool = True


UNKNOWN = SparkType("unknown")
VOID = SparkType("void")


def array(element: SparkType) -> SparkType:
    return SparkType("array", parts=(element,))


def struct(fields: Iterable[tuple[str, SparkType]]) -> SparkType:
    pairs = tuple(fields)
    return SparkType("struct", parts=tuple(t for _, t in pairs), fields=tuple(n for n, _ in pairs))


def decimal(precision: int, scale: int) -> SparkType:
    return SparkType("decimal", (precision, scale))


def quoted(name: str) -> str:
    """A column's name as SQL text: in backticks, unless the name is a plain word."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name


@lru_cache(maxsize=4096)
def parse_type(text: str) -> SparkType:
    """Reads one type.

    Raises:
        TypeProblem: The text is not a Spark SQL type.

    Examples:
        >>> str(parse_type("STRUCT<a: Integer, b: array<dec(5)>>"))
        'struct<a:int,b:array<decimal(5,0)>>'
    """
    reader = _Reader(text)
    read = reader.type()
    reader.end()
    return read


def parse_columns(text: str) -> tuple[DeclaredColumn, ...]:
    """Reads the columns of a DDL text, such as "id bigint NOT NULL, `my col` string", or the fields of a `struct<...>`.

    Raises:
        TypeProblem: A name without a type, an unknown type, or an unfinished text.
    """
    if re.match(r"\s*struct\s*<", text, re.IGNORECASE):
        struct_type = parse_type(text)
        return tuple(DeclaredColumn(n, t) for n, t in zip(struct_type.fields, struct_type.parts, strict=True))
    reader = _Reader(text)
    columns = reader.columns(closing=None)
    reader.end()
    return columns


class _Reader:
    """A recursive descent parser of types and column lists: each method reads the part that its name says."""

    def __init__(self, text: str) -> None:
        self.tokens = [m.group(m.lastindex or 0) for m in _TOKEN.finditer(text)]
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        if all(self.peek(i).lower() == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.accept(sign):
            place = f"before {self.peek()!r}" if self.peek() else "at the end"
            raise TypeProblem(f"{sign!r} is missing {place}")

    def end(self) -> None:
        if self.peek():
            raise TypeProblem(f"{self.peek()!r} is not expected there")

    def type(self) -> SparkType:
        word = self.take()
        name = _ALIASES.get(word.lower(), word.lower())
        if not name:
            raise TypeProblem("a type is missing at the end")
        if name == "interval":
            return self.interval()
        if name in _NESTED:
            return self.nested(name)
        if name in _SIZED:
            return SparkType(name, self.numbers(name))
        if name not in _PLAIN:
            raise TypeProblem(f"unknown type {word!r}", unknown=word)
        if name == "string" and self.accept("collate"):
            return SparkType(f"string collate {self.take().upper()}")
        return SparkType(name)

    def nested(self, name: str) -> SparkType:
        self.need("<")
        if name == "struct":
            columns = self.columns(closing=">")
            return struct((c.name, c.type) for c in columns)
        parts = [self.type()]
        if name == "map":
            self.need(",")
            parts.append(self.type())
        self.need(">")
        return SparkType(name, parts=tuple(parts))

    def numbers(self, name: str) -> tuple[int, ...]:
        sizes: list[int] = []
        if self.accept("("):
            while not sizes or self.accept(","):
                number = self.take()
                if not (number.isascii() and number.isdigit()):
                    raise TypeProblem(f"{name} takes numbers, not {number!r}")
                sizes.append(int(number))
            self.need(")")
        if name == "decimal":
            precision = sizes[0] if sizes else 10
            scale = sizes[1] if len(sizes) > 1 else 0
            if len(sizes) > 2 or not 0 <= scale <= precision <= MAX_PRECISION:
                raise TypeProblem(
                    f"decimal({','.join(map(str, sizes))}) is out of range: the precision is at most {MAX_PRECISION}, "
                    "and the scale at most the precision"
                )
            return precision, scale
        if name == "time" and not sizes:
            return (6,)
        if len(sizes) != 1:
            raise TypeProblem(f"{name} needs a length, such as {name}(20)")
        return tuple(sizes)

    def interval(self) -> SparkType:
        units = ("year", "month", "day", "hour", "minute", "second")
        if self.peek().lower() not in units:
            return SparkType("interval")
        words = [self.take().lower()]
        if self.accept("to"):
            words += ["to", self.take().lower()]
        return SparkType(f"interval {' '.join(words)}")

    def columns(self, closing: str | None) -> tuple[DeclaredColumn, ...]:
        columns: list[DeclaredColumn] = []
        while self.peek() and self.peek() != closing:
            columns.append(self.column(closing))
            if not self.accept(","):
                break
        if closing is not None:
            self.need(closing)
        elif not columns:
            raise TypeProblem("no column is declared")
        return tuple(columns)

    def column(self, closing: str | None) -> DeclaredColumn:
        name = self.take()
        if not re.fullmatch(r"`(?:[^`]|``)+`|\w+", name):
            raise TypeProblem(f"{name!r} is not a column's name")
        self.accept(":")
        if self.peek() in ("", ",", closing):
            raise TypeProblem(f"the column {unquoted(name)!r} has no type")
        read, nullable = self.type(), True
        while self.peek() not in ("", ",", closing):
            if self.accept("not", "null"):
                nullable = False
            elif self.accept("comment"):
                self.take()
            elif self.peek().lower() in ("default", "generated"):
                self.skip(closing)
            else:
                raise TypeProblem(f"{self.peek()!r} is not expected after the type of {unquoted(name)!r}")
        return DeclaredColumn(unquoted(name), read, nullable)

    def skip(self, closing: str | None) -> None:
        depth = 0
        while self.peek() and (depth or self.peek() not in (",", closing)):
            depth += {"(": 1, ")": -1}.get(self.take(), 0)


def cast_type(kind: SparkType) -> SparkType:
    """The type of a value that is cast to `kind`: Spark makes char and varchar a string outside of table schemas."""
    if kind.name in ("char", "varchar"):
        return SparkType("string")
    return replace(kind, parts=tuple(cast_type(p) for p in kind.parts))


def as_decimal(kind: SparkType) -> SparkType | None:
    """The decimal type that has all values of a decimal or integer type; None for other types."""
    if kind.name == "decimal":
        return kind
    return decimal(_DIGITS[kind.name], 0) if kind.name in _DIGITS else None


def widest(kinds: Iterable[SparkType]) -> SparkType:
    """The common type of the operands of COALESCE, CASE or UNION; `unknown` if Spark's rule is not certain."""
    return reduce(wider, kinds, VOID)


def wider(a: SparkType, b: SparkType) -> SparkType:
    """The common type of two types by Spark's ANSI coercion.

    It is `unknown` for a string and another type except void, and wherever the rule is not certain.

    Examples:
        >>> str(wider(parse_type("decimal(10,2)"), parse_type("int")))
        'decimal(12,2)'
    """
    if b in (a, VOID):
        return a
    if a == VOID:
        return b
    names = {a.name, b.name}
    if names <= {"date", "timestamp", "timestamp_ntz"}:
        return SparkType("timestamp" if "timestamp" in names else "timestamp_ntz")
    if names <= set(INTEGRAL):
        return max(a, b, key=lambda t: INTEGRAL.index(t.name))
    if names <= set(NUMERIC) and names & {"float", "double"}:
        return SparkType("double")
    if names <= set(NUMERIC):
        left, right = as_decimal(a), as_decimal(b)
        assert left is not None
        assert right is not None
        scale = max(left.numbers[1], right.numbers[1])
        whole = max(left.numbers[0] - left.numbers[1], right.numbers[0] - right.numbers[1])
        return decimal(whole + scale, scale) if whole + scale <= MAX_PRECISION else UNKNOWN
    if names == {"array"}:
        element = wider(a.parts[0], b.parts[0])
        return array(element) if element != UNKNOWN else UNKNOWN
    return UNKNOWN
