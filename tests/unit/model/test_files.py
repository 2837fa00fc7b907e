"""Declared files: formats, options, and what happens to rows and files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helios import Files
from helios.errors import DeclarationError
from helios.model.file_formats import FORMATS, REFUSED

CSV = Files.source("a.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heder", r"option\(heder=\.\.\.\): csv files have no such option\. Did you mean 'header'\?"),
        ("seperator", r"Did you mean 'sep'\?"),
        ("primitivesAsString", r"It is an option of json\."),
        ("mode", r"is not left to Spark\. Fix: say what happens to rows that do not parse with \.on_bad_row"),
        ("pathGlobFilter", "Fix: write it into the path"),
        ("maxFilesPerTrigger", r"Fix: write \.incremental\(max_files="),
    ],
)
def test_an_option_that_is_none(name: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_files\.py:\d+: .*{message}"):
        CSV.option(**{name: "x"})


def test_options_take_what_python_has() -> None:
    source = CSV.option(header=False, maxColumns=5, SEP=";")
    assert source.reader_options() == {"header": "false", "escape": '"', "maxColumns": "5", "sep": ";"}
    with pytest.raises(DeclarationError, match="the value is list"):
        CSV.option(**{"nullValue": ["NA"]})  # type: ignore[arg-type]


def test_no_option_is_both_known_and_refused() -> None:
    assert {option for row in FORMATS.values() for option in row.options} & set(REFUSED) == set()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("x/*.csv", "csv"),
        ("a.jsonl.zst", "json"),
        ("a.snappy.parquet", "parquet"),
        ("a.avro", "avro"),
        ("a.txt", "text"),
    ],
)
def test_a_path_tells_its_format(path: str, told: str) -> None:
    assert Files.source(path).format == told


def test_a_folder_tells_its_format_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    with pytest.raises(DeclarationError, match="the format is not clear from the path"):
        Files.source(str(tmp_path / "in"))
    (tmp_path / "in" / "day=1" / "part-0.csv.gz").touch()
    (tmp_path / "in" / "_SUCCESS").touch()
    assert Files.source(str(tmp_path / "in")).format == "csv"
    assert Files.source(str(tmp_path / "*")).format == "csv"
    (tmp_path / "in" / "b.json").touch()
    with pytest.raises(DeclarationError, match=r"Its files are csv and json\."):
        Files.source(str(tmp_path / "in"))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Files.source("a.csv", extra="ignore"), "extra= is about columns beside a declared schema"),
        (lambda: Files.source("a.csv", rescued="_r"), "rescued= is about columns beside a declared schema"),
        (lambda: Files.source("a.csv", schema="id int", extra="drop"), r"extra\('drop'\) is unknown"),
        (lambda: CSV.on_bad_row("skip"), r"on_bad_row\('skip'\) is unknown"),
        (lambda: CSV.on_bad_file("drop"), r"on_bad_file\('drop'\) is unknown"),
    ],
)
def test_what_does_not_fit(declare: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare()


def test_avro_brings_its_jar() -> None:
    assert Files.source("a.avro").jars == ("avro",)
    assert CSV.jars == ()


def test_setting_aside_needs_a_quarantine() -> None:
    assert CSV.quarantining == ()
    assert CSV.on_bad_row("quarantine").on_bad_file("quarantine").quarantining == (
        'on_bad_row("quarantine")',
        'on_bad_file("quarantine")',
    )
