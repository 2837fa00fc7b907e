"""Each line of a csv is a row, a header, a comment, or a bad row with its text: none is taken for what it is not."""

from __future__ import annotations

import bz2
import csv
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest

from helios import Files, cast, col, select, union
from helios.errors import InputError, RunError
from helios.sources.files.declare import FilesSource
from tests.streaming.landing import land, read
from tests.streaming.test_text_casts import CASES

pytestmark = [pytest.mark.promise("bad-rows"), pytest.mark.sampled(2)]

OPEN = "a quote is not closed on its line; fields with line breaks need .option(multiLine=True)"
MAYBE = "it may belong to a quoted field that began on a line before"
NUMBER = "it has another number of fields than the file has columns"


@contextmanager
def parts_of(world: Any, size: int) -> Iterator[None]:
    """Tasks read parts of so many bytes."""
    before = world.spark.conf.get("spark.sql.files.maxPartitionBytes")
    world.spark.conf.set("spark.sql.files.maxPartitionBytes", str(size))
    try:
        yield
    finally:
        world.spark.conf.set("spark.sql.files.maxPartitionBytes", before)


QUOTES = {
    "a quote that is never closed": (
        'id,name\n1,"a\n2,b\n3,c\n',
        {},
        [('1,"a', OPEN), ("2,b", MAYBE), ("3,c", MAYBE)],
    ),
    "a line break": (
        'id,name\n1,"a\n2,b"\n3,c\n',
        {("3", "c"): 1},
        [('1,"a', OPEN), ('2,b"', MAYBE)],
    ),
    "several": (
        'id,name\n1,"a\n\n9,\n"\n3,"c, ""d"""\n4,5" nails\n"5",e\n',
        {("3", 'c, "d"'): 1, ("4", '5" nails'): 1, ("5", "e"): 1},
        [('"', MAYBE), ('1,"a', OPEN), ("9,", MAYBE)],
    ),
    "a hundred lines at most": (
        'id,name\n1,"a\n' + "2,b\n" * 100 + "3,c\n",
        {("3", "c"): 1},
        sorted([('1,"a', OPEN), *[("2,b", MAYBE)] * 100]),
    ),
}


@pytest.mark.parametrize("which", QUOTES)
@pytest.mark.cases(short="a line break")
def test_a_quote_that_is_not_closed(world: Any, which: str) -> None:
    text, good, bad = QUOTES[which]
    source = Files.source(str(land(world.folder / "in", "a.csv", text)), "csv", schema="id string, name string")
    with pytest.raises(RunError, match=r"a\.csv, line 2: a quote is not closed on its line"):
        world.run(source >> world.sink("a.fail"))
    assert read(world, source) == (good, bad)


def test_line_breaks_in_quotes_are_read_with_multi_line(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", 'id,name\n1,"a\nb"\nx,"c\nd"\n')
    source = Files.source(str(folder), "csv", schema="id bigint, name string").option(multiLine=True)
    assert read(world, source) == ({(1, "a\nb"): 1}, [('x,"c\nd"', "id does not fit bigint")])


NUL = "it holds a NUL character, which Spark's parser may leave out"
SPACES = "it holds only spaces, which may be a value of the only column, or no row"


@pytest.mark.parametrize("whole", [False, True])
def test_signs_that_sparks_parser_leaves_out(world: Any, whole: bool) -> None:
    folder = land(world.folder / "in", "a.csv", "name\n\x01\x1f\nb\0\n \t \n\0c\0\nd\n")
    source = Files.source(str(folder), "csv", schema="name string").option(quote="", multiLine=whole)
    assert read(world, source) == (
        {("\x01\x1f",): 1, ("d",): 1},
        [("\0c\0", NUL), (" \t ", SPACES), ("b\0", NUL)],
    )


@pytest.mark.parametrize("whole", [False, True])
def test_a_line_of_spaces_may_be_a_value_of_the_only_column(world: Any, whole: bool) -> None:
    folder = land(world.folder / "in", "a.csv", "name\na\n\n  \nb\n\t")
    source = Files.source(str(folder), "csv", schema="name string").option(multiLine=whole)
    assert read(world, source) == ({("a",): 1, ("b",): 1}, [("\t", SPACES), ("  ", SPACES)])


def test_a_header_behind_a_part_of_comments(world: Any) -> None:
    comments = "# " + "-" * 96 + "\n"
    folder = land(world.folder / "in", "a.csv", comments * 25 + "id,name\n1,a\n" + comments * 25 + "2,b\n")
    source = Files.source(str(folder), "csv", schema="id string, name string").option(comment="#")
    with parts_of(world, 1000):
        assert read(world, source) == ({("1", "a"): 1, ("2", "b"): 1}, [])


@pytest.mark.parametrize("whole", [False, True])
def test_spaces_alone_in_quotes_beside_ignore_trailing_white_space(world: Any, whole: bool) -> None:
    folder = land(world.folder / "in", "a.csv", 'id,name\n1,a \n2,"  "\n3,"b "\n4,""\n" ",c\n')
    source = Files.source(str(folder), "csv", schema="id string, name string")
    blank = "it has a field of quoted spaces, which ignoreTrailingWhiteSpace cannot read"
    assert read(world, source.option(ignoreTrailingWhiteSpace=True, multiLine=whole)) == (
        {("1", "a"): 1, ("3", "b "): 1, ("4", None): 1},
        [('" ",c', blank), ('2,"  "', blank)],
    )


def test_a_quote_that_is_not_doubled_may_go_on_to_the_closing_one(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", 'id,name\n1,"a"b,c"\n2,"a"b\n3,"d""e"\n')
    source = Files.source(str(folder), "csv", schema="id string, name string")
    source = source.option(unescapedQuoteHandling="STOP_AT_CLOSING_QUOTE")
    assert read(world, source) == (
        {("1", 'a"b,c'): 1},
        [('2,"a"b', OPEN), ('3,"d""e"', MAYBE)],
    )


def test_a_line_of_tabs_is_a_row_of_a_tsv(world: Any) -> None:
    folder = land(world.folder / "in", "a.tsv", "id\tname\n1\ta\n\t\n\n   \n")
    assert read(world, Files.source(str(folder / "*.tsv"), schema="id string, name string")) == (
        {("1", "a"): 1, (None, None): 1},
        [],
    )


def test_the_fields_are_counted_also_where_other_columns_are_left_out(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", "id,name,more\n1,a,x\n2,b\n3,c,x,y\n")
    source = Files.source(str(folder), "csv", schema="id bigint", extra="ignore")
    assert read(world, source) == ({(1,): 1}, [("2,b", NUMBER), ("3,c,x,y", NUMBER)])


@pytest.mark.landing
def test_bytes_that_are_no_text_of_the_encoding(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", "id,name\n1,größe\n2,\ufffd\n".encode() + "3,größe\n".encode("latin-1"))
    source = Files.source(str(folder), "csv", schema="id bigint, name string")
    assert read(world, source) == (
        {(1, "größe"): 1, (2, "\ufffd"): 1},
        [("3,gr\ufffd\ufffde", "it contains bytes that are not UTF-8")],
    )


@pytest.mark.parametrize(("format", "encoding"), [("csv", "ISO-8859-1"), ("text", "windows-1252")])
def test_another_encoding(world: Any, format: str, encoding: str) -> None:
    folder = land(world.folder / "in", f"a.{format}", "größe\n".encode(encoding))
    source = Files.source(str(folder), format).option(encoding=encoding)
    assert read(world, source.option(header=False) if format == "csv" else source) == ({("größe",): 1}, [])


def test_text_that_is_not_utf8(world: Any) -> None:
    folder = land(world.folder / "in", "a.txt", b"one\ntwo \xff\n")
    source = Files.source(str(folder), "text")
    with pytest.raises(RunError, match=r"a\.txt(, line 2)?: it contains bytes that are not UTF-8: two"):
        world.run(source >> world.sink("a.fail"))
    assert read(world, source) == ({("one",): 1}, [("two \ufffd", "it contains bytes that are not UTF-8")])


def test_utf16_needs_multi_line(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", "id,name\n1,größe\n".encode("utf-16"))
    source = Files.source(str(folder), "csv", schema="id bigint, name string").option(encoding="UTF-16")
    with pytest.raises(InputError, match=r"UTF-16.* write \.option\(multiLine=True\)"):
        world.run(source >> world.sink("a.fail"))
    assert read(world, source.option(multiLine=True)) == ({(1, "größe"): 1}, [])


def test_a_utf16_file_that_is_cut_off_is_set_aside(world: Any) -> None:
    folder = land(world.folder / "in", "a.txt", "one\ntwo".encode("utf-16")[:-1])
    source = Files.source(str(folder), "text").option(encoding="UTF-16", wholetext=True)
    assert read(world, source) == ({}, [("one\ntw\ufffd", "it contains bytes that are not UTF-16")])


def test_an_encoding_that_java_lacks(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", "id\n1\n")
    source = Files.source(str(folder), "csv", schema="id bigint").option(encoding="utf99")
    with pytest.raises(InputError, match=r"test_csv_lines\.py.*Java knows no encoding 'utf99'"):
        world.run(source >> world.sink("a.fail"))


@pytest.mark.parametrize(("format", "fix"), [("csv", "multiLine"), ("text", "wholetext")])
def test_line_ends_that_no_reader_finds_are_told(world: Any, format: str, fix: str) -> None:
    folder = land(world.folder / "in", f"a.{format}", "id\n1\n2\n".encode("cp037"))
    source = Files.source(str(folder), format).option(encoding="IBM037")
    with pytest.raises(InputError, match=rf"in IBM037 a line does not end with .*\.option\({fix}=True\)"):
        world.run(source >> world.sink("a.fail"))


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.cases(landing="decimal(10,2)")
def test_what_a_type_cannot_hold_is_a_bad_row(world: Any, kind: str) -> None:
    good, bad = CASES[kind]
    folder = land(world.folder / "in", "a.csv", "v\n" + "".join(f"{text}\n" for text in (*good, *bad)))
    rows, aside = read(world, Files.source(str(folder), "csv", schema=f"v {kind}"))
    assert sum(rows.values()) == len(good)
    assert aside == sorted((text, f"v does not fit {kind}") for text in bad)


def test_values_are_written_as_options_say(world: Any) -> None:
    text = "day;at;x;n\n24.12.2026;24/12/2026 18:30;none;NA\n2026-12-24;24/12/2026 18:30;1;2\n"
    folder = land(world.folder / "in", "a.csv", text)
    source = Files.source(str(folder), "csv", schema="day date, at timestamp, x double, n bigint")
    source = source.option(sep=";", dateFormat="dd.MM.yyyy", timestampFormat="dd/MM/yyyy HH:mm", nanValue="none")
    rows, aside = read(world, source.option(nullValue="NA"))
    [(day, at, x, n)] = rows
    assert (str(day), at.strftime("%Y-%m-%d %H:%M"), math.isnan(x), n) == ("2026-12-24", "2026-12-24 18:30", True, None)
    assert aside == [("2026-12-24;24/12/2026 18:30;1;2", "the row does not parse")]


@pytest.mark.parametrize("name", ["ORC", "PARENT_ID", "BZhang"])
def test_a_column_may_be_named_like_the_first_bytes_of_another_format(world: Any, name: str) -> None:
    folder = land(world.folder / "in", "a.csv", f"{name},v\n1,2\n")
    assert read(world, Files.source(str(folder), "csv", schema=f"{name} bigint, v bigint")) == ({(1, 2): 1}, [])


def test_two_sources_of_one_path_have_the_columns_of_their_own_options(world: Any) -> None:
    source = Files.source(str(land(world.folder / "in", "a.csv", "id,v\n1,x\n2,3\n")), "csv")
    texts = source >> select("v")
    numbers = source.option(nullValue="x") >> select((col("v") + 1).alias("v")) >> cast(v="string")
    assert read(world, texts >> union(numbers)) == ({("x",): 1, ("3",): 1, (None,): 1, ("4",): 1}, [])


WRITTEN: dict[str, tuple[dict[str, str], str, dict[str, str], tuple[str, ...]]] = {
    "time zone": (
        {"timeZone": "Europe/Berlin"},
        "timestamp",
        {
            "2026-01-01 12:30": "2026-01-01 11:30:00+00:00",
            " 2026-07-01T12:30:00.123456 ": "2026-07-01 10:30:00.123456+00:00",
            "2026-01-01": "2025-12-31 23:00:00+00:00",
            "2026-01-01T12:30:00Z": "2026-01-01 12:30:00+00:00",
            "2026-01-01 12:30:00-05:00": "2026-01-01 17:30:00+00:00",
            "2026-03-29 01:59:59.999999": "2026-03-29 00:59:59.999999+00:00",
            "2026-03-29T03:00": "2026-03-29 01:00:00+00:00",
            "2026-03-29T02:30:00Z": "2026-03-29 02:30:00+00:00",
            "2026-10-25 02:30": "2026-10-25 00:30:00+00:00",
        },
        (
            "2026-03-29 02:00",
            "2026-03-29T02:59:59.999999",
            "12:30",
            "T12:30:00",
            "2026-01-01T12:30:00.1234567",
            "2026-01-01Tx",
            "2026-13-01",
            "noon",
        ),
    ),
    "offset": ({"timeZone": "+02:00"}, "timestamp", {"2026-01-01 12:30": "2026-01-01 10:30:00+00:00"}, ("12:30",)),
    "date": (
        {"timeZone": "Europe/Berlin", "locale": "de-DE"},
        "date",
        {"2026-01-01": "2026-01-01"},
        ("2026-01-01 9:15",),
    ),
    "ntz": (
        {"timeZone": "Asia/Tokyo"},
        "timestamp_ntz",
        {"2026-01-01 12:30:00": "2026-01-01 12:30:00"},
        ("2026-01-01T00:00:00Z",),
    ),
    "german": (
        {"locale": "de-DE"},
        "decimal(10,2)",
        {"1.234,56": "1234.56", "1234,5": "1234.50", "-3": "-3.00", ",5": "0.50", " 1.234.567 ": "1234567.00"},
        ("1.25", "1,255", "1.2.3", "1,2,3", "12345678901", "1.23,4", "x", "1e2"),
    ),
    "american": ({"locale": "en-US"}, "decimal(10,2)", {"1,234.56": "1234.56", "7": "7.00"}, ("1,25", "1.255")),
    "numbers": (
        {"nanValue": "none", "positiveInf": "much", "negativeInf": "few"},
        "double",
        {"none": "nan", "much": "inf", "few": "-inf", "1.5": "1.5"},
        ("1e400", "1d", "x"),
    ),
}


@pytest.mark.parametrize("which", WRITTEN)
def test_what_options_say_how_it_is_written_is_judged_too(world: Any, which: str) -> None:
    options, kind, good, bad = WRITTEN[which]
    folder = land(world.folder / "in", "a.csv", "v\n" + "".join(f"{text}\n" for text in (*good, *bad)))
    source = Files.source(str(folder), "csv", schema=f"v {kind}").option(sep=";", **options)
    rows, aside = read(world, source)
    assert Counter(str(value) for (value,) in rows.elements()) == Counter(good.values())
    assert aside == sorted((text, f"v does not fit {kind}") for text in bad)


@pytest.mark.short
def test_the_parts_of_a_large_file(world: Any) -> None:
    """A file that many tasks read has one header; whatever a field may hold is read as Python has written it."""
    some = random.Random(7)
    signs = ["a", "ß", "\u20ac", " ", ",", '"', "'", "\\", ";", "#", "\t", "1", "\U0001f600"]
    rows = [(str(n), "".join(some.choices(signs, k=some.randint(1, 8))), str(n % 7)) for n in range(5_000)]
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([("id", "name", "id 2"), *rows])
    folder = land(world.folder / "in", "a.csv", "\ufeff" + text.getvalue())
    with parts_of(world, 3000):
        found, aside = read(world, Files.source(str(folder), "csv", schema="id string, name string, `id 2` string"))
    assert aside == []
    assert found == Counter(rows)


def cut(world: Any, size: int, source: FilesSource) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[str, str]]]:
    """The rows of a source whose files are read in parts of so many bytes, and the bad ones."""
    table, aside = f"a.t{size}", f"a.q{size}"
    with parts_of(world, size):
        world.run(source.on_bad_row("quarantine") >> world.sink(table).quarantine(aside))
    bad = ((json.loads(payload)["text"], why) for payload, why in world.rows(aside, "payload", "reason").elements())
    return world.rows(table), Counter(bad)


WHOLE = 1 << 30


def test_an_open_quote_reaches_over_the_end_of_a_part(world: Any) -> None:
    some = random.Random(11)
    lines = ["id,name"]
    for number in range(400):
        kinds = ([f"{number},x"] * 30, [f'{number},"a', *["in, side"] * some.randint(0, 5), 'b"'], [f'{number},"open'])
        lines += some.choices(kinds, weights=(20, 10, 1))[0]
    folder = land(world.folder / "in", "a.csv", "\n".join(lines))
    source = Files.source(str(folder), "csv", schema="id string, name string")
    expected = cut(world, WHOLE, source)
    assert sum(expected[1].values()) > 400
    assert cut(world, 997, source) == expected


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_open_is_looked_for_further_before_a_part(world: Any, packed: bool) -> None:
    """None of the 80 long lines tells whether a quote is open, and they are more than is looked at first."""
    some = random.Random(3)
    long = [f"{some.randbytes(1500).hex()},x" for _ in range(80)]
    text = "\n".join(["id,name", '1,"open', *long, 'end"', *["2,b"] * 5, *long, '3,"c"']).encode()
    folder = land(world.folder / "in", "a.csv.bz2" if packed else "a.csv", bz2.compress(text, 1) if packed else text)
    source = Files.source(str(folder), "csv", schema="id string, name string")
    expected = cut(world, WHOLE, source)
    assert sum(expected[1].values()) == 82
    assert cut(world, 60_000, source) == expected


@pytest.mark.slow
def test_many_columns(world: Any) -> None:
    names = [f"c{n}" for n in range(700)]
    lines = [",".join(names), ",".join(map(str, range(700))), ",".join(["x"] * 700), ",".join(["1"] * 30_000)]
    folder = land(world.folder / "in", "a.csv", "\n".join(lines))
    rows, aside = read(
        world,
        Files.source(str(folder), "csv", schema=dict.fromkeys(names, "int")).on_bad_row("quarantine") >> select("c7"),
    )
    assert rows == {(7,): 1}
    assert [text[:3] for text, _ in aside] == ["1,1", "x,x"]


def test_a_line_break_in_a_name_of_the_header_is_told(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", '"a\nb",c\n1,2\n')
    with pytest.raises(RunError, match="a name in its header has a line break, which needs"):
        world.run(Files.source(str(folder), "csv") >> world.sink("a.t"))


@pytest.mark.parametrize("multi_line", [False, True])
def test_a_quote_at_the_end_beside_a_separator_of_several_characters(world: Any, multi_line: bool) -> None:
    """Spark's parser doubles it, where the field is not quoted."""
    folder = land(world.folder / "in", "a.csv", 'id||size\n1||5"\n2||a"b\n3||"x||y"\n4||"6"" "\n5||7" \n')
    source = Files.source(str(folder), "csv", schema="id int, size string").option(sep="||", multiLine=multi_line)
    rows, aside = read(world, source)
    assert rows == Counter([(2, 'a"b'), (3, "x||y"), (4, '6" ')])
    why = "its last field ends with a quote, which Spark doubles if the separator has several characters"
    assert aside == [('1||5"', why), ('5||7" ', why)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_column_of_the_file_has_the_name_of_rescued(world: Any, format: str) -> None:
    folder = land(world.folder / "in", "a.csv", "id,_rescued,x\n1,a,b\n")
    if format == "parquet":
        world.spark.read.csv(f"file:{folder}", header=True).write.parquet(f"file:{world.folder}/parquet")
        folder = world.folder / "parquet"
    source = Files.source(str(folder), format, schema="id string", rescued="_rescued")
    with pytest.raises(InputError, match="already has a column '_rescued'"):
        world.run(source >> world.sink("a.t"))
