"""Columns from folders such as `day=2026-01-01` below a source's path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import date
from glob import has_magic
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from helios.errors import InputError
from helios.sources.common.spark.types import NUMBERS, by_name, united
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark.text_numbers import comes_back
from helios.table.file_names import encoded

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a value."""

KINDS: tuple[tuple[str, DataType], ...] = (
    (r"[+-]?\d{1,9}", IntegerType()),
    (r"[+-]?\d{1,18}", LongType()),
    (r"[+-]?\d*\.\d+([eE][+-]?\d+)?", DoubleType()),
    (r"\d{4}-\d{2}-\d{2}", DateType()),
    (r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?", TimestampType()),
)
"""The types that Spark infers for partition values, by their texts; any other text is a string.

So is a number that is not written as one: `code=01234` is no 1234.
"""

LONGEST: dict[type[DataType], int] = {IntegerType: 9, LongType: 18, DoubleType: 15}
"""So many signs of a number surely fit the type."""


def columns(path: str, files: Iterable[str]) -> StructType:
    """The partition columns of files, typed by their values.

    Args:
        path: The path of the source; folders of the path itself are no columns, but those that a glob stands for are.
        files: The paths of the files.

    Raises:
        InputError: A folder lies in one of another value of its column.
    """
    values: dict[str, tuple[str, set[str]]] = {}
    for folder in dict.fromkeys(file.rsplit("/", 1)[0] + "/" for file in files):
        folder_pairs = pairs(path, folder)
        if re.search(r"/[^/=]+=/", "/" + _below(_plain(path), _plain(folder))):
            raise InputError(
                f"{folder} gives no value: for some writers that is an empty text, and for others null.",
                fix=f"rename the folder: null is {NULL}, and an empty text only the files themselves can have.",
            )
        names = [name.lower() for name, _ in folder_pairs]
        if len(names) > len(set(names)):
            raise InputError(
                f"{folder} gives a row two values of a column: {', '.join('='.join(pair) for pair in folder_pairs)}.",
                fix="rename one of the folders, or name its parent as the source's path.",
            )
        for name, value in folder_pairs:
            values.setdefault(name.lower(), (name, set()))[1].add(value)
    return StructType([StructField(name, _kind(texts)) for name, texts in values.values()])


def pairs(path: str, file: str) -> list[tuple[str, str]]:
    """The names and values in the folders of a file below a source's path."""
    parts = re.split(r"/+", _below(_plain(path), _plain(file)))[:-1]
    split = (part.partition("=") for part in parts)
    return [(unquote(name), unquote(value)) for name, sign, value in split if sign and name and value]


def fit(path: str, files: Iterable[str], keys: StructType) -> bool:
    """True if all folder names are certainly values of their columns, so that no row is bad by its folder.

    Args:
        path: The path of the source.
        files: The paths of the files.
        keys: The partition columns, with the types that are wanted.
    """
    kinds = {name: field.dataType for name, field in by_name(keys).items()}
    folder_pairs = {pair for folder in {file.rsplit("/", 1)[0] + "/" for file in files} for pair in pairs(path, folder)}
    return all(text == NULL or _fits(text, kinds.get(name.lower(), StringType())) for name, text in folder_pairs)


def _fits(text: str, kind: DataType) -> bool:
    if isinstance(kind, DateType):
        try:
            return date.fromisoformat(text).isoformat() == text
        except ValueError:
            return False
    most = LONGEST.get(type(kind), 0)
    return isinstance(kind, StringType) or (len(text) <= most and comes_back(text, kind))


def _plain(path: str) -> str:
    """A path without its scheme, and absolute if it is local."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1:
        return re.sub(r"^[A-Za-z][\w+.-]*:(//[^/]*)?", "", path)
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


def _below(path: str, file: str) -> str:
    """The part of a file's path below the source's path without its glob."""
    parts = path.rstrip("/").split("/")
    fixed = next((i for i, part in enumerate(parts) if has_magic(part) or "{" in part), len(parts))
    root = "/".join(parts[:fixed]) + "/"
    if file.startswith(root):
        return file[len(root) :]
    start = file.find(root)
    return file[start + len(root) :] if start >= 0 else file.rsplit("/", 1)[-1]


def _kind(values: Iterable[str]) -> DataType:
    """The type of partition values."""
    kind: DataType | None = None
    texts = [value for value in values if value != NULL]
    for value in texts:
        told = next((kind for pattern, kind in KINDS if re.fullmatch(pattern, value)), StringType())
        kind = told if kind is None else united(kind, told, inferred=True)
    if isinstance(kind, NUMBERS) and not all(comes_back(text, kind) for text in texts):
        return StringType()
    return kind or StringType()


def appended(wanted: StructType, keys: StructType) -> tuple[StructType, StructType]:
    """Columns with the partition columns, which win over columns of the same name; and the partition columns."""
    known = by_name(keys)
    fields = [known.get(field.name.lower(), field) for field in wanted.fields]
    rest = [field for field in keys.fields if field.name.lower() not in by_name(wanted)]
    return StructType([*fields, *rest]), keys


def value(name: str, path: str, files: Iterable[str]) -> Column:
    """The value of a partition column as text, from the file of a row; null where it has no such folder.

    Args:
        name: The column.
        path: The path of the source.
        files: The paths of the files.
    """
    written: set[str] = set()
    root = ""
    source = _plain(path)
    for folder in dict.fromkeys(file.rsplit("/", 1)[0] + "/" for file in files):
        plain = _plain(folder)
        below = _below(source, plain)
        root = root or plain.removesuffix(below)
        names = (part.partition("=")[0] for part in re.split(r"/+", below)[:-1] if "=" in part)
        written |= {written_name for written_name in names if unquote(written_name).lower() == name.lower()}
    any_of_them = "|".join(sorted(re.escape(encoded(written_name)) for written_name in written))
    pattern = f"(?i)^.*?{re.escape(encoded(root))}(?:.*/)?(?:{any_of_them})=([^/]*)/"
    text = F.regexp_extract(bad_rows.path(), pattern, 1)
    # The file's path is encoded once, and Hive encodes signs in the names of its folders.
    for _ in range(2):
        text = F.coalesce(F.try_url_decode(F.replace(text, F.lit("+"), F.lit("%2B"))), text)
    return F.when(~text.isin("", NULL), text)
