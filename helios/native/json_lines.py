"""Lines of JSON objects as frames: lines of one template are split at their quotes, others are read by Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.native.plain import any_of, fields, values
from helios.native.program import NotNative
from helios.native.work import Text

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

TEXTS = ("string", "date", "timestamp", "timestamp_ntz")
"""Types whose values are strings in JSON."""
BEGIN, COLON = re.compile(rb"\{ *"), re.compile(rb" *: *")
BEHIND = re.compile(rb" *(, *|\})")
OTHER = re.compile(rb"( *: *)[^ ,}]+( *(?:, *|\}))")
"""The text between the quotes around a value that is not a string: the value, and the punctuation around it."""


@dataclass(frozen=True)
class Template:
    """The text between the quotes of lines of the same form.

    Attributes:
        same: The parts that are the same in each line, by their places.
        texts: The places of the values that are strings, by column.
        others: The places of other values, by column, with the text before and after the value.
    """

    same: Mapping[int, str]
    texts: Mapping[str, int]
    others: Mapping[str, tuple[int, str, str]]

    @property
    def places(self) -> int:
        return len(self.same) + len(self.texts) + len(self.others)

    @classmethod
    def of(cls, line: str, text: Text) -> Template | None:
        """The template of a JSON object; None if it lacks a column, has another one or one twice, or a null string."""
        parts, kinds = line.encode().split(b'"'), dict(text.columns)
        same, texts, others = {0: line.partition('"')[0]}, {}, {}
        at, behind = 1, b","
        while at + 1 < len(parts) and not behind.endswith(b"}"):
            name = parts[at].decode()
            same[at] = name
            kind = kinds.pop(name, None)
            if kind in TEXTS and at + 3 < len(parts) and COLON.fullmatch(parts[at + 1]):
                behind = parts[at + 3]
                same |= {at + 1: parts[at + 1].decode(), at + 3: behind.decode()}
                texts[name] = at + 2
                at += 4
            elif kind is not None and kind not in TEXTS and (match := OTHER.fullmatch(parts[at + 1])):
                behind = match[2]
                others[name] = at + 1, match[1].decode(), behind.decode()
                at += 2
            else:
                return None
            if not BEHIND.fullmatch(behind):
                return None
        whole = BEGIN.fullmatch(parts[0]) and behind.endswith(b"}") and at == len(parts) and not kinds
        return cls(same, texts, others) if whole else None


def read(lines: bytes, text: Text, count: int) -> pl.DataFrame:
    """The rows of lines.

    Args:
        lines: The lines, in UTF-8 without control characters.
        text: Their format.
        count: Their number.

    Raises:
        NotNative: A line is not plain.
        pyarrow.ArrowException: A line is not an object with these columns.
    """
    frame = _by_template(lines, text, count) if b"\\" not in lines else None
    return frame if frame is not None else _by_arrow(lines, text, count)


def _by_template(lines: bytes, text: Text, count: int) -> pl.DataFrame | None:
    """The rows of lines that have the form of the first line; None if a line has not, or a value is not plain.

    Without a backslash, each quote begins or ends a string. Lines with the same text between their quotes, except for
    values, are therefore objects that differ only in these values.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    template = Template.of(lines[: lines.index(b"\n")].decode(), text)
    if template is None or lines.count(b'"') != count * (template.places - 1):
        return None
    try:
        parts = fields(lines, '"', template.places)
        if len(parts[0]) != count or any(any_of(pc.not_equal(parts[i], same)) for i, same in template.same.items()):
            return None
        texts = {name: parts[place] for name, place in template.texts.items()}
        for name, (place, before, behind) in template.others.items():
            part = parts[place]
            if not pc.all(pc.and_(pc.starts_with(part, before), pc.ends_with(part, behind))).as_py():
                return None
            value = pc.binary_slice(part.cast(pa.binary()), len(before), -len(behind)).cast(pa.string())
            texts[name] = pc.if_else(pc.equal(value, "null"), None, value)
        return pl.DataFrame([values(texts[name], name, kind) for name, kind in text.columns])
    except (NotNative, pl.exceptions.PolarsError, pa.ArrowException):
        return None


def _by_arrow(lines: bytes, text: Text, count: int) -> pl.DataFrame:
    """The rows of lines as Arrow reads them.

    Fields are flat. So a line that begins with { and ends with } is one object, or Arrow refuses it.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.json

    if not lines.startswith(b"{") or lines.count(b"\n{") != count - 1 or lines.count(b"}\n") != count:
        raise NotNative("a line is not a single JSON object")
    if b"\\u0000" in lines:
        raise NotNative("a text has a NUL")
    schema = pa.schema([(name, _type(kind)) for name, kind in text.columns])
    table = pa.json.read_json(
        pa.BufferReader(lines),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
        ),
    )
    if table.num_rows != count:
        raise NotNative("a line is not one row")
    table.validate(full=True)  # Arrow checks the precision of a decimal before it applies the scale
    series = []
    for name, kind in text.columns:
        column = table.column(name)
        series.append(values(column, name, kind) if kind in TEXTS else pl.Series(name, column))
        if kind == "double" and not series[-1].is_finite().all():
            raise NotNative(f"a value of {name} is not a plain {kind}")
    return pl.DataFrame(series)


def _type(kind: str) -> pa.DataType:
    """The Arrow type that a value is read as: its own, or a string that is converted afterwards."""
    import pyarrow as pa

    from helios.native.writer import arrow_type

    return pa.string() if kind in TEXTS else arrow_type(kind)
