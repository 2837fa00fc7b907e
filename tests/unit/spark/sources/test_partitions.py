"""Columns from the folders of files."""

from __future__ import annotations

import pytest

from helios.sources.files.spark import partitions


@pytest.mark.parametrize(
    ("path", "file", "found"),
    [
        ("/lake", "file:/lake/day=1/a.csv", [("day", "1")]),
        ("/lake/day=1", "file:/lake/day=1/hour=2/a.csv", [("hour", "2")]),
        ("/lake/*/day=*/", "file:/lake/x/day=1/a.csv", [("day", "1")]),
        ("s3a://b/lake", "s3a://b/lake/k=a%2Fb/a.csv", [("k", "a/b")]),
        ("/lake/a=1.csv", "file:/lake/a=1.csv", []),
    ],
)
def test_the_folders_of_a_file(path: str, file: str, found: list[tuple[str, str]]) -> None:
    assert partitions.pairs(path, file) == found


def test_the_types_of_folders() -> None:
    files = [f"/lake/a=0{i}/b=2026-01-0{i}/c={i}.5/d={'x' if i > 1 else 1}/f" for i in range(1, 4)]
    assert partitions.columns("/lake", files).simpleString() == "struct<a:string,b:date,c:double,d:string>"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("1", "12"), "int"),
        (("1", "123456789012"), "bigint"),
        (("1", "1.5"), "double"),
        (("01234",), "string"),
        (("+5",), "string"),
        (("1.5", "1.10"), "string"),
        (("1.5", "123456789012345678"), "string"),
        (("1.5", partitions.NULL), "double"),
        (("-0",), "string"),
    ],
)
def test_a_folder_whose_text_is_not_written_as_its_number_is_text(values: tuple[str, ...], kind: str) -> None:
    files = [f"/lake/a={value}/f" for value in values]
    assert partitions.columns("/lake", files).simpleString() == f"struct<a:{kind}>"
