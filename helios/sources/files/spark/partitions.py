"""Partition columns, from folders such as `day=2026-01-01` below the path of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import date
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
from helios.sources.files.spark.text_numbers import is_canonical
from helios.table.file_names import encoded, split_glob

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null in the name of a folder."""

TYPES: tuple[tuple[str, DataType], ...] = (
    (r"[+-]?\d{1,9}", IntegerType()),
    (r"[+-]?\d{1,18}", LongType()),
    (r"[+-]?\d*\.\d+([eE][+-]?\d+)?", DoubleType()),
    (r"\d{4}-\d{2}-\d{2}", DateType()),
    (r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?", TimestampType()),
)
"""The types of partition values, by the patterns of their texts, much as Spark infers them. Any other text is a string.

A number that is not in its canonical form is a string, too: `code=01234` is not 1234.
"""

MAX_LENGTHS: dict[type[DataType], int] = {IntegerType: 9, LongType: 18, DoubleType: 15}
"""The length up to which the text of a number certainly fits into the type."""


def columns(path: str, files: Iterable[str]) -> StructType:
    """The partition columns of files, typed by their values.

    Args:
        path: The path of the source. Only folders below this path, or that a glob in it matches, are columns.

    Raises:
        InputError: A path has two folders of the same column, or a folder without a value.
    """
    values: dict[str, tuple[str, set[str]]] = {}
    for folder in dict.fromkeys(file.rsplit("/", 1)[0] + "/" for file in files):
        folder_pairs = pairs(path, folder)
        if re.search(r"/[^/=]+=/", "/" + _below(_bare_path(path), _bare_path(folder))):
            raise InputError(
                f"{folder} gives no value: some writers mean an empty text, and others mean null.",
                fix=f"rename the folder: write {NULL} for null. Only a column in the files can have an empty text.",
            )
        names = [name.lower() for name, _ in folder_pairs]
        if len(names) > len(set(names)):
            raise InputError(
                f"{folder} gives a row two values of a column: {', '.join('='.join(pair) for pair in folder_pairs)}.",
                fix="rename one of the folders, or let the path of the source end with the upper folder.",
            )
        for name, value in folder_pairs:
            values.setdefault(name.lower(), (name, set()))[1].add(value)
    return StructType([StructField(name, _type_of(texts)) for name, texts in values.values()])


def pairs(path: str, file: str) -> list[tuple[str, str]]:
    """The names and values of the partition columns in the path of a file, below the path of a source."""
    parts = re.split(r"/+", _below(_bare_path(path), _bare_path(file)))[:-1]
    split = (part.partition("=") for part in parts)
    return [(unquote(name), unquote(value)) for name, _, value in split if name and value]


def all_fit(path: str, files: Iterable[str], partition_columns: StructType) -> bool:
    """Returns True if all partition values certainly fit the types of their columns, so that no value makes a row bad.

    Args:
        partition_columns: The partition columns with their final types.
    """
    kinds = {name: field.dataType for name, field in by_name(partition_columns).items()}
    folder_pairs = {pair for folder in {file.rsplit("/", 1)[0] + "/" for file in files} for pair in pairs(path, folder)}
    return all(text == NULL or _fits(text, kinds.get(name.lower(), StringType())) for name, text in folder_pairs)


def _fits(text: str, kind: DataType) -> bool:
    if isinstance(kind, DateType):
        try:
            return date.fromisoformat(text).isoformat() == text
        except ValueError:
            return False
    return isinstance(kind, StringType) or (len(text) <= MAX_LENGTHS.get(type(kind), 0) and is_canonical(text, kind))


def _bare_path(path: str) -> str:
    """A path without its scheme and bucket, and absolute if it is local."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1:
        return re.sub(r"^[A-Za-z][\w+.-]*:(//[^/]*)?", "", path)
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


def _below(path: str, file: str) -> str:
    """The part of a file's path below the source's path; if that is a glob, below the folders that precede the glob."""
    root = path.rstrip("/") + "/"
    if not file.startswith(root):
        root = split_glob(path)[0].rstrip("/") + "/"
    if file.startswith(root):
        return file[len(root) :]
    start = file.find(root)
    return file[start + len(root) :] if start >= 0 else file.rsplit("/", 1)[-1]


def _type_of(values: Iterable[str]) -> DataType:
    common: DataType | None = None
    texts = [value for value in values if value != NULL]
    for text in texts:
        kind = next((kind for pattern, kind in TYPES if re.fullmatch(pattern, text)), StringType())
        common = kind if common is None else united(common, kind, inferred=True)
    if isinstance(common, NUMBERS) and not all(is_canonical(text, common) for text in texts):
        return StringType()
    return common or StringType()


def with_partition_columns(columns: StructType, partition_columns: StructType) -> StructType:
    """The columns together with the partition columns. A partition column replaces a column of the same name."""
    partition_fields = by_name(partition_columns)
    fields = [partition_fields.get(field.name.lower(), field) for field in columns.fields]
    added = [field for field in partition_columns.fields if field.name.lower() not in by_name(columns)]
    return StructType([*fields, *added])


def value(name: str, path: str, files: Iterable[str]) -> Column:
    """The text of a partition column, from the path of each row's file; null for `NULL`, and if no folder has it."""
    spellings: set[str] = set()
    root = ""
    source = _bare_path(path)
    for folder in dict.fromkeys(file.rsplit("/", 1)[0] + "/" for file in files):
        bare_folder = _bare_path(folder)
        below = _below(source, bare_folder)
        root = root or bare_folder.removesuffix(below)
        names = (part.partition("=")[0] for part in re.split(r"/+", below)[:-1] if "=" in part)
        spellings |= {spelling for spelling in names if unquote(spelling).lower() == name.lower()}
    any_spelling = "|".join(sorted(re.escape(encoded(spelling)) for spelling in spellings))
    pattern = f"(?i)^.*?{re.escape(encoded(root))}(?:.*/)?(?:{any_spelling})=([^/]*)/"
    text = F.regexp_extract(bad_rows.path(), pattern, 1)
    # The text is decoded twice, since Hive encodes the names of its folders, and Spark then encodes the whole path.
    for _ in range(2):
        text = F.coalesce(F.try_url_decode(F.replace(text, F.lit("+"), F.lit("%2B"))), text)
    return F.when(~text.isin("", NULL), text)
