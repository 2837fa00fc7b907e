"""The values of reader options that Helios refuses are those that the running Spark refuses."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from helios.errors import DeclarationError
from helios.sources.files.formats import FORMATS
from helios.sources.files.option_values import BOOLEANS, CHARACTERS, CHOICES, INTEGERS, SEPARATORS, check_value

pytestmark = pytest.mark.promise("files")

VALUES: dict[frozenset[str], tuple[str, ...]] = {
    BOOLEANS: ("FALSE", "ture", ""),
    CHARACTERS: ("", "'", "ab"),
    INTEGERS: ("5", "128", "0", "-2", "5.0", "x", " 5"),
    SEPARATORS: (";", "||", "\\t", "\\\\", "\x00", "", "\\", "\\k", "a\\"),
    frozenset(CHOICES): (*{word for words in CHOICES.values() for word in words}, "skip_value", "legacy", "LEGCY"),
    frozenset({"lineSep"}): ("\n", "\r\n", "abc", ""),
}
FILES = {"csv": "id,b\n1,x\n", "json": '{"id": 1, "b": "x"}\n', "text": "1,x\n"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    # Pyarrow's file does not say that Spark wrote it, so that the rebase modes count; int96 for theirs.
    old = {"id": pa.array([1]), "day": pa.array([date(2020, 1, 1)]), "at": pa.array([0], pa.timestamp("us"))}
    pq.write_table(pa.table(old), tmp_path / "parquet", use_deprecated_int96_timestamps=True)
    return tmp_path


def spark_refuses(world: Any, file: Path, **options: str) -> bool:
    reader = world.spark.read.format(file.name)
    if file.name in ("csv", "json"):
        reader = reader.schema("id string, b string")
    try:
        reader.options(**options).load(f"file://{file}").collect()
    except (PySparkException, Py4JError):
        return True
    return False


def helios_refuses(format: str, option: str, value: str) -> bool:
    try:
        check_value(option, value, format)
    except DeclarationError:
        return True
    return False


def test_spark_refuses_the_same_values(world: Any, files: Path) -> None:
    tried, differ = set(), []
    for format in ("csv", "json", "text", "parquet"):
        for option in FORMATS[format].options:
            for value in next((values for options, values in VALUES.items() if option in options), ()):
                ours = helios_refuses(format, option, value)
                tried.add((option, ours))
                if spark_refuses(world, files / format, **{option: value}) != ours:
                    differ.append((format, option, value, "refused" if ours else "taken"))
    assert {option for option, ours in tried if ours} == {option for option, ours in tried if not ours}
    assert differ == []
