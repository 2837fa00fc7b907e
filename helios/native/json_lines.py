"""Reads lines of JSON objects.

If all lines have the form of the first line, they are split at their quotes. Otherwise, Arrow parses all lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.native.plain import any_of, parse_values, split_fields
from helios.native.program import NotNative
from helios.native.work import LinesFormat

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

TEXTS = ("string", "date", "timestamp", "timestamp_ntz")
"""Types whose values are strings in JSON."""
BEGIN, COLON = re.compile(rb"\{ *"), re.compile(rb" *: *")
END_OF_VALUE = re.compile(rb" *(, *|\})")
UNQUOTED = re.compile(rb"( *: *)[^ ,}]+( *(?:, *|\}))")
"""Matches the text between the quote that ends a name and the next quote, if the value is not quoted.

The text has a colon, the value, and a comma or a closing brace.
"""


@dataclass(frozen=True)
class Template:
    """The common form of lines. A line is split at its quotes into parts.

    Attributes:
        constant_parts: The parts that are the same in each line, by index.
        quoted: For each string column, the index of the part that is the value.
        unquoted: For each other column: the index of the part that contains the value, the text before the value in
            that part, and the text after the value.
    """

    constant_parts: Mapping[int, str]
    quoted: Mapping[str, int]
    unquoted: Mapping[str, tuple[int, str, str]]

    @property
    def part_count(self) -> int:
        return len(self.constant_parts) + len(self.quoted) + len(self.unquoted)

    @classmethod
    def of(cls, line: str, lines_format: LinesFormat) -> Template | None:
        """The template of the object in a line.

        None if a column is missing, a field is not a column or occurs twice, or the value of a string column is null.
        """
        parts, kinds = line.encode().split(b'"'), dict(lines_format.columns)
        constant_parts, quoted, unquoted = {0: line.partition('"')[0]}, {}, {}
        at, after = 1, b","
        while at + 1 < len(parts) and not after.endswith(b"}"):
            name = parts[at].decode()
            constant_parts[at] = name
            kind = kinds.pop(name, None)
            if kind in TEXTS and at + 3 < len(parts) and COLON.fullmatch(parts[at + 1]):
                after = parts[at + 3]
                constant_parts |= {at + 1: parts[at + 1].decode(), at + 3: after.decode()}
                quoted[name] = at + 2
                at += 4
            elif kind is not None and kind not in TEXTS and (match := UNQUOTED.fullmatch(parts[at + 1])):
                after = match[2]
                unquoted[name] = at + 1, match[1].decode(), after.decode()
                at += 2
            else:
                return None
            if not END_OF_VALUE.fullmatch(after):
                return None
        is_complete = BEGIN.fullmatch(parts[0]) and after.endswith(b"}") and at == len(parts) and not kinds
        return cls(constant_parts, quoted, unquoted) if is_complete else None


def read(lines: bytes, lines_format: LinesFormat, count: int) -> pl.DataFrame:
    """Parses lines into rows.

    Args:
        lines: The lines, in UTF-8 without control characters.
        count: The number of lines.

    Raises:
        NotNative: A line is not plain, see `helios.native.lines`.
        pyarrow.ArrowException: A line is not an object with these columns.
    """
    frame = _by_template(lines, lines_format, count) if b"\\" not in lines else None
    return frame if frame is not None else _by_arrow(lines, lines_format, count)


def _by_template(lines: bytes, lines_format: LinesFormat, count: int) -> pl.DataFrame | None:
    """Parses lines that all have the form of the first line, and have no backslash.

    Each quote of such lines begins or ends a string. So a line that equals the first line outside of the values is an
    object with the same fields.

    Returns:
        The rows; None if a line has another form, or if a value is not plain.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    template = Template.of(lines[: lines.index(b"\n")].decode(), lines_format)
    if template is None or lines.count(b'"') != count * (template.part_count - 1):
        return None
    try:
        parts = split_fields(lines, '"', template.part_count)
        constants = template.constant_parts.items()
        if len(parts[0]) != count or any(any_of(pc.not_equal(parts[i], constant)) for i, constant in constants):
            return None
        texts = {name: parts[index] for name, index in template.quoted.items()}
        for name, (index, before, after) in template.unquoted.items():
            part = parts[index]
            if not pc.all(pc.and_(pc.starts_with(part, before), pc.ends_with(part, after))).as_py():
                return None
            value = pc.binary_slice(part.cast(pa.binary()), len(before), -len(after)).cast(pa.string())
            texts[name] = pc.if_else(pc.equal(value, "null"), None, value)
        return pl.DataFrame([parse_values(texts[name], name, kind) for name, kind in lines_format.columns])
    except (NotNative, pl.exceptions.PolarsError, pa.ArrowException):
        return None


def _by_arrow(lines: bytes, lines_format: LinesFormat, count: int) -> pl.DataFrame:
    """Parses lines with Arrow. Each line must begin with { and end with }.

    No column is nested, so Arrow refuses an object inside an object. So an object cannot go on in the next line, which
    begins with { again. If a line has several objects, the number of rows is too large, and the lines are refused.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.json

    if not lines.startswith(b"{") or lines.count(b"\n{") != count - 1 or lines.count(b"}\n") != count:
        raise NotNative("a line is not a single JSON object")
    if b"\\u0000" in lines:
        raise NotNative("a text has a NUL")
    schema = pa.schema([(name, _type(kind)) for name, kind in lines_format.columns])
    table = pa.json.read_json(
        pa.BufferReader(lines),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
        ),
    )
    if table.num_rows != count:
        raise NotNative("a line is not one row")
    # `read_json` checks the precision of a decimal before it applies the scale. So a value may still be too long.
    table.validate(full=True)
    series = []
    for name, kind in lines_format.columns:
        column = table.column(name)
        series.append(parse_values(column, name, kind) if kind in TEXTS else pl.Series(name, column))
        if kind == "double" and not series[-1].is_finite().all():
            raise NotNative(f"a value of {name} is not a plain {kind}")
    return pl.DataFrame(series)


def _type(kind: str) -> pa.DataType:
    """The type with which Arrow reads a column; string if `parse_values` converts the values afterwards."""
    import pyarrow as pa

    from helios.native.writer import arrow_type

    return pa.string() if kind in TEXTS else arrow_type(kind)
