"""The metrics of columns in Iceberg's metadata of a data file: counts, and bounds in single-value serialization."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helios.native.work import Column


@dataclass
class ColumnMetrics:
    """The metrics of one column of one file, collected while its row groups are written.

    Attributes:
        values: The number of values, including nulls.
        nans: The number of NaNs, for floating-point numbers.
        size: The bytes of the column in the file.
        low: The smallest value; None without values.
        high: The largest value; None without values.
    """

    column: Column
    values: int = 0
    nulls: int = 0
    nans: int = 0
    size: int = 0
    low: Any = None
    high: Any = None

    @property
    def floating(self) -> bool:
        return self.column.kind in ("float", "double")

    def add(self, values: Any) -> None:
        """Adds the values of an Arrow array."""
        import pyarrow.compute as pc

        self.values += len(values)
        self.nulls += values.null_count
        mode = self.column.metrics
        if mode == "none":
            return
        if self.floating:
            nan = pc.is_nan(values)
            self.nans += pc.sum(nan).as_py() or 0
            if mode != "counts":
                values = pc.if_else(nan, None, values)
        if mode == "counts":
            return
        extremes = pc.min_max(values)
        low, high = (extremes[end].value if self.temporal else extremes[end].as_py() for end in ("min", "max"))
        if low is None:
            return
        if self.floating and 0.0 in (low, high):
            low, high = _signed(values, low, high)
        less = _below if self.floating else (lambda a, b: a < b)
        self.low = low if self.low is None or less(low, self.low) else self.low
        self.high = high if self.high is None or less(self.high, high) else self.high

    @property
    def temporal(self) -> bool:
        """True for dates and times. They are kept as Arrow's numbers, since Python's times end in the year 9999."""
        return self.column.kind in ("date", "timestamp", "timestamp_ntz")

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """The lower and the upper bound, each None if there is none."""
        mode = self.column.metrics
        if mode in ("none", "counts") or self.low is None:
            return None, None
        encode = _ENCODED.get(self.column.kind, _decimal)
        if not mode.startswith("truncate(") or self.column.kind not in ("string", "binary"):
            return encode(self.low), encode(self.high)
        width = int(mode.removeprefix("truncate(").removesuffix(")"))
        above = text_above if self.column.kind == "string" else bytes_above
        high = above(self.high, width)
        return encode(self.low[:width]), None if high is None else encode(high)


def _signed(values: Any, low: float, high: float) -> tuple[float, float]:
    """The bounds with the right sign of a zero; -0.0 counts as less than 0.0."""
    import numpy as np

    numbers = values.drop_null().to_numpy(zero_copy_only=False)
    zero_is_negative = np.signbit(numbers[numbers == 0.0])
    if low == 0.0 and zero_is_negative.any():
        low = -0.0
    if high == 0.0:
        high = -0.0 if zero_is_negative.all() else 0.0
    return low, high


def _below(a: float, b: float) -> bool:
    """True if `a` is less than `b`; -0.0 counts as less than 0.0."""
    return a < b or (a == b == 0.0 and math.copysign(1, a) < math.copysign(1, b))


def _decimal(value: Any) -> bytes:
    """The unscaled value of a decimal, big-endian, in as few bytes as possible."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    number = -number if sign else number
    bits = (number if number >= 0 else ~number).bit_length() + 1  # the sign takes a bit
    return number.to_bytes(math.ceil(bits / 8), "big", signed=True)


_ENCODED: dict[str, Callable[[Any], bytes]] = {
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "int": lambda value: struct.pack("<i", value),
    "bigint": lambda value: struct.pack("<q", value),
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
    "string": lambda value: value.encode(),
    "binary": bytes,
    "date": lambda value: struct.pack("<i", value),
    "timestamp": lambda value: struct.pack("<q", value),
    "timestamp_ntz": lambda value: struct.pack("<q", value),
}
"""Iceberg's binary single-value serialization, by type."""


def text_above(value: str, width: int) -> str | None:
    """Returns a text of at most `width` characters that is not less than a value; None if there is no such text.

    Examples:
        >>> text_above("abc", 3), text_above("abcd", 3), text_above(chr(0x10FFFF) * 3, 2)
        ('abc', 'abd', None)
    """
    if len(value) <= width:
        return value
    kept = value[:width]
    for index in range(width - 1, -1, -1):
        code = ord(kept[index]) + 1
        code = 0xE000 if 0xD800 <= code <= 0xDFFF else code  # surrogates are not characters
        if code <= 0x10FFFF:
            return kept[:index] + chr(code)
    return None


def bytes_above(value: bytes, width: int) -> bytes | None:
    """Returns at most `width` bytes that are not less than a value; None if there are no such bytes.

    Examples:
        >>> bytes_above(b"ab", 2), bytes_above(bytes([1, 255, 3]), 2), bytes_above(bytes([255, 255]), 1)
        (b'ab', b'\\x02', None)
    """
    if len(value) <= width:
        return value
    kept = value[:width]
    for index in range(width - 1, -1, -1):
        if kept[index] < 0xFF:
            return kept[:index] + bytes([kept[index] + 1])
    return None
