"""Plain lines of csv and JSON as frames: the values that are written, or none at all."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helios.native import lines, plain
from helios.native.program import NotNative
from helios.native.work import InputFile, LinesFormat

pytestmark = pytest.mark.promise("engine")

KINDS = ("boolean", "int", "bigint", "double", "decimal(9,2)", "date", "timestamp", "timestamp_ntz", "string")
COLUMNS = tuple((f"c {kind}", kind) for kind in KINDS)
CSV = LinesFormat("csv", COLUMNS, header=tuple(name for name, _ in COLUMNS))
JSON = LinesFormat("json", COLUMNS)

times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters='",\\ '), min_size=1)
values = st.tuples(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(1 - 10**18, 10**18 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(Decimal("-9999999.99"), Decimal("9999999.99"), places=2),
    st.dates(),
    times.map(lambda time: time.replace(tzinfo=UTC)),
    times,
    texts,
)
rows = st.lists(
    values.flatmap(lambda row: st.tuples(*(st.sampled_from([one, one, None]) for one in row))), min_size=1, max_size=20
)
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(path: Path, text: LinesFormat, part: int | None = None) -> list[tuple[Any, ...]]:
    """The rows of a file, by parts of so many bytes."""
    size = path.stat().st_size
    files = [InputFile(str(path), size)]
    if part is not None:
        files = [InputFile(str(path), min(part, size - at), begin=at, file_size=size) for at in range(0, size, part)]
    return [row for file in files for frame in lines.rows(file, text) for row in frame.rows()]


def one(tmp_path: Path, kind: str, value: str, form: str = "csv") -> Any:
    """What a value is, as the second of two columns."""
    path = tmp_path / "one"
    line = f"1,{value}\n" if form == "csv" else f'{{"id":1,"a":{value}}}\n'
    path.write_bytes(line.encode("utf-8", "surrogateescape"))
    return read(path, LinesFormat(form, (("id", "bigint"), ("a", kind))))[0][1]


def written(value: Any) -> str:
    """A value as a field of csv."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value.isoformat() if isinstance(value, date) else str(value)


def in_json(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(written(value), ensure_ascii=len(written(value)) % 2 == 0)


@shared_folder
@given(rows, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([None, 1, 7, 100, 5000]))
def test_what_is_written_is_read(
    tmp_path: Path, drawn: list[tuple[Any, ...]], end: str, ended: bool, part: int | None
) -> None:
    assume(not any(all(value is None for value in row) for row in drawn))
    table = [CSV.header, *(tuple(map(written, row)) for row in drawn)]
    path = tmp_path / "in.csv"
    path.write_bytes((end.join(",".join(row) for row in table) + end * ended).encode())
    objects = [
        ", ".join(f"{json.dumps(name)}: {in_json(value)}" for (name, _), value in zip(COLUMNS, row, strict=True))
        for row in drawn
    ]
    other = tmp_path / "in.json"
    other.write_bytes((end.join(f"{{{one}}}" for one in objects) + end * ended).encode())
    if part is not None and part < len(",".join(CSV.header)) + 2:
        part = 200
    assert read(path, CSV, part) == drawn
    assert read(other, JSON, part) == drawn


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("bigint", "-0", 0),
        ("double", "-0.0", -0.0),
        ("double", "1e-400", 0.0),
        ("decimal(3,3)", "0.125", Decimal("0.125")),
        ("decimal(4,0)", "9999", Decimal(9999)),
        ("decimal(38,2)", "-" + "9" * 36 + ".25", Decimal("-" + "9" * 36 + ".25")),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("date", "1582-10-10", date(1582, 10, 10)),
        ("timestamp", "2024-02-29T23:59:59.5+05:30", datetime(2024, 2, 29, 18, 29, 59, 500000, UTC)),
        ("timestamp", "2024-02-29 23:59:59Z", datetime(2024, 2, 29, 23, 59, 59, 0, UTC)),
        ("string", "null", "null"),
        ("string", "", None),
        ("int", "", None),
    ],
)
def test_values_of_csv(tmp_path: Path, kind: str, value: str, found: Any) -> None:
    made = one(tmp_path, kind, value)
    assert (made, str(made)) == (found, str(found))


UNSURE = {
    "boolean": ["True", "1", "t"],
    "int": ["2147483648", "+1", "01", "1.0", "1e2", "1_0", "0x1", "\u0661"],
    "bigint": ["9223372036854775808", "01", "1 2", "--1", "NULL"],
    "double": ["NaN", "Infinity", "1e400", ".5", "5.", "1d", "1f", "00.5", "0x1p3"],
    "decimal(4,2)": ["100", "1.255", "1e1", ".5", "12345678901234567890", "1,5"],
    "decimal(2,2)": ["1.00", "01.00"],
    "date": ["2024-02-30", "0000-01-01", "2024-1-1", "2024-01-01T00:00:00", "12024-01-01", "today"],
    "timestamp": ["2024-01-01", "2024-01-01T24:00:00", "2024-01-01T00:00:60", "2024-01-01T00:00", "1700000000",
                  "2024-01-01T00:00:00.1234567", "2024-01-01T00:00:00+18:00", "2024-01-01T00:00:00 UTC", "now"],
    "timestamp_ntz": ["2024-01-01T00:00:00Z", "2024-13-01T00:00:00"],
    "string": [" a", "a ", "a,b", '"a"', 'a"b', "a\\b", "a\0", "a\tb", "a\rb", "\udcff", "\udced\udca0\udc80"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, found in UNSURE.items() for value in found])
def test_values_of_csv_that_are_not_plain(tmp_path: Path, kind: str, value: str) -> None:
    with pytest.raises(NotNative):
        one(tmp_path, kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("int", value) for value in ("2147483648", "1.0", "01", '"1"', "true", "[1]", '{"a":1}', "NaN", "1e1")),
        *(("double", value) for value in ("NaN", "Infinity", "1e400", '"1.5"', ".5")),
        *(("decimal(4,2)", value) for value in ("100", "99999999999999999999", "1.255", "NaN", "true")),
        *(
            ("string", value)
            for value in ("1", "true", "'a'", '"a\tb"', r'"\ud800"', r'"\udc00"', r'"\u0000"', r'"\x"')
        ),
        *(("string", value) for value in ('"\udcff"', '"a', '"a","id":2', '"a","b":2', '"a","A":2', '"a"}{"id":3')),
        *(("string", value) for value in ('"a"}\n\n{"id":3', '"a"} x\n{"id":3', '"a"}\n[]\n{"id":3', '"a",\n"id":3')),
        *(("date", value) for value in ("20000", '"2024-02-30"', '"2024-01-01T00:00:00"', '"2024-1-1"')),
        *(("timestamp", value) for value in ("1700000000", '"2024-01-01"', '"2024-01-01T00:00:00.1234567Z"')),
        *(("timestamp_ntz", value) for value in ('"2024-01-01T00:00:00Z"',)),
        *(("boolean", value) for value in ("1", '"true"', "True")),
    ],
)
def test_values_of_json_that_are_not_plain(tmp_path: Path, kind: str, value: str) -> None:
    with pytest.raises(NotNative):
        one(tmp_path, kind, value, "json")


SEEDS = {
    "int": "2147483647", "bigint": "-123456789012345678", "double": "-1.5e10", "decimal(9,2)": "1234567.89",
    "boolean": "true", "date": "2024-02-29", "timestamp": "2024-02-29T23:59:59.123Z",
    "timestamp_ntz": "2024-02-29 23:59:59.12",
}  # fmt: skip
letters = st.sampled_from("0123456789-+.:eETZz _x\u0663")


@settings(deadline=None)
@given(st.sampled_from(sorted(SEEDS)), st.lists(st.tuples(st.integers(0, 25), st.integers(0, 2), letters), max_size=3))
def test_what_is_taken_is_written_plainly(kind: str, changes: list[tuple[int, int, str]]) -> None:
    """Also where no pattern is asked, but what Arrow makes of a text."""
    text = SEEDS[kind]
    for at, gone, letter in changes:
        text = text[:at] + letter + text[at + gone :]
    try:
        plain.parse_values(pa.chunked_array([[text, None]], pa.string()), "a", kind)
    except (NotNative, pl.exceptions.PolarsError, pa.ArrowException):
        return
    assert re.fullmatch(plain.pattern(kind), text)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ('{"id":1,"a":"b"}', '{"a":"b","id":1}'),
        ('{"id":1,"a":"b"}', '{"id":1,"a": "b"}'),
        ('{"id":1,"a":"b"}', '{"id":1}'),
        ('{"id":1,"a":"b"}', '{"id":null,"a":null}'),
        ('{"id":1,"a":"b"}', '{"id":1,"a":"b\\n"}'),
        ('{ "id" : 1 , "a" : "b" }', '{ "id" : 1, "a" : "b" }'),
        ('{"a":"b"}', '{"id":1,"a":"b"}'),
        ('{"a":"b","id":1}', '{"a":":1,","id":2}'),
        ('{"id":1,"a":""}', '{"id":2,"a":"null"}'),
        ('{}', '{"id":1,"a":"b"}'),
    ],
)  # fmt: skip
def test_objects_are_written_alike_or_not(tmp_path: Path, first: str, other: str) -> None:
    path = tmp_path / "in.json"
    text = LinesFormat("json", (("id", "bigint"), ("a", "string")))
    for found in ((first, first), (first, other), (other, first, other)):
        path.write_text("".join(f"{line}\n" for line in found))
        assert read(path, text) == [(row.get("id"), row.get("a")) for row in map(json.loads, found)]


@pytest.mark.parametrize("line", ['{"id":1"a":"b"}', '{"id":1,"a":"b",}', '{"id":1,,"a":"b"}', '{"id":,"a":"b"}',
                                  '"id":1,"a":"b"}', '{"id":1,"a":"b"', '{"id":1,"a" "b"}', '{"id":1,"id":"b"}',
                                  '{"id":1,"a":"b"}}', '{"id":1,"b":"a"}', '{"id":1 2,"a":"b"}'])  # fmt: skip
def test_lines_that_are_alike_and_no_objects(tmp_path: Path, line: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(NotNative):
        read(path, LinesFormat("json", (("id", "bigint"), ("a", "string"))))


@pytest.mark.parametrize(
    "content",
    [
        "b,id\n1,a\n", '"id","b"\n1,a\n', "ID,b\n1,a\n", "\nid,b\n1,a\n", "id,b\n1\n", "id,b\n1,a,c\n",
        "id,b\n1,a\n\n2,b\n",
        "id,b\n1,a,c\n2\n", "id,b\n1,a\n2,b,c\n3\n", "id,b\n,\n", "id,b\n1,a\r2,b\n",
        "\ufeffid,b\n1,a\n", "id,b\n1,a\n 2,b\n", "",
    ],
)  # fmt: skip
def test_files_that_are_not_plain(tmp_path: Path, content: str) -> None:
    path = tmp_path / "in.csv"
    path.write_text(content, newline="")
    text = LinesFormat("csv", (("id", "bigint"), ("b", "string")), header=("id", "b"))
    if not content:
        assert read(path, text) == []
        return
    with pytest.raises(NotNative):
        read(path, text)


def test_a_file_that_is_shorter_than_it_was(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1\n2\n")
    text = LinesFormat("csv", (("id", "bigint"),))
    assert [row for frame in lines.rows(InputFile(str(path), 2), text) for row in frame.rows()] == [(1,)]
    for file in (InputFile(str(path), 5), InputFile(str(path), 2, begin=3, file_size=5)):
        with pytest.raises(NotNative):
            list(lines.rows(file, text))


def test_a_long_line_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 40)
    path = tmp_path / "in.csv"
    path.write_text(f"1,a\n2,{'b' * 300}\n3,c\n")
    text = LinesFormat("csv", (("id", "bigint"), ("b", "string")))
    for part in (None, 50):
        with pytest.raises(NotNative, match="long"):
            read(path, text, part)
    path.write_text(f"1,a\n2,{'b' * 60}\n3,c\n")
    for part in (None, 7):
        assert [row[0] for row in read(path, text, part)] == [1, 2, 3]
