"""csv and json with `multiLine`: what is a row of lines is one here, and what is a bad row too."""

from __future__ import annotations

import csv
import gzip
import random
from collections import Counter
from io import StringIO
from typing import Any

import pytest

from helios import Files, drop, with_columns
from helios.errors import RunError
from tests.streaming.landing import land, read
from tests.streaming.test_json_values import VALUES
from tests.streaming.test_text_casts import CASES

pytestmark = pytest.mark.promise("bad-rows")

MAYBE = "it may belong to a quoted field that began on a line before"
OPEN = "a quote is not closed, or one inside it is not doubled"
NUMBER = "it has another number of fields than the file has columns"
NO_OBJECT = "it is neither a JSON object nor an array of JSON objects"


def csv_of(world: Any, content: str | bytes, schema: Any = "id string, name string", **options: Any) -> Any:
    extra = options.pop("extra", "fail")
    folder = land(world.folder / "in", "a.csv", content)
    return Files.source(str(folder), "csv", schema=schema, extra=extra).option(multiLine=True, **options)


def json_of(world: Any, content: str | bytes, schema: Any, **more: Any) -> Any:
    folder = land(world.folder / "in", "a.json", content)
    return Files.source(str(folder), "json", schema=schema, **more).option(multiLine=True)


QUOTES = {
    "never closed": (
        'id,name\n0,"a\nb"\n1,"a\n2,b\n3,c\n',
        {("0", "a\nb"): 1},
        [('1,"a', OPEN), ("2,b", MAYBE), ("3,c", MAYBE)],
    ),
    "closed by the quote of another row": (
        'id,name\n1,"a\n2,b\n3,"c"\n4,d\n5,"e\r\nf"\n',
        {("4", "d"): 1, ("5", "e\r\nf"): 1},
        [('1,"a', OPEN), ("2,b", MAYBE), ('3,"c"', MAYBE)],
    ),
    "closed by the quote of another row of lines": (
        'id,name\n1,"a\n2,"b\nc"\n3,d\n',
        {("3", "d"): 1},
        [('1,"a', OPEN), ('2,"b\nc"', MAYBE)],
    ),
    "breaks of every kind": (
        'id,name\r\n1,"a\rb\r\nc\n\n, ""d"""\r\n\r\n2,\n',
        {("1", 'a\rb\r\nc\n\n, "d"'): 1, ("2", None): 1},
        [],
    ),
    "a quote that is text": ('id,name\n1,a "b"\n2,"a" b\n', {("1", 'a "b"'): 1, ("2", '"a" b'): 1}, []),
}


@pytest.mark.parametrize("which", QUOTES)
@pytest.mark.cases(landing="never closed")
def test_quotes(world: Any, which: str) -> None:
    text, good, bad = QUOTES[which]
    assert read(world, csv_of(world, text)) == (good, sorted(bad))


def test_the_line_of_a_quote_that_is_not_closed_is_told(world: Any) -> None:
    with pytest.raises(
        RunError, match=r'a\.csv, line 4: a quote is not closed, or one inside it is not doubled: 1,"a;'
    ):
        world.run(csv_of(world, QUOTES["never closed"][0]) >> world.sink("a.t"))


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_compressed_file(world: Any, format: str) -> None:
    text = {"csv": 'id,name\n1,"a\nb"\n', "json": '[{"id": 1,\n"name": "a\\nb"}]'}[format]
    folder = land(world.folder / "in", f"a.{format}.gz", gzip.compress(text.encode()))
    source = Files.source(str(folder), format, schema="id string, name string").option(multiLine=True)
    assert read(world, source) == ({("1", "a\nb"): 1}, [])


def test_the_number_of_fields_counts_also_where_columns_are_left_out(world: Any) -> None:
    text = 'id,name,more\n1,"a\nb",x\n2,"b\nc"\n3,c,x,"\ny"\n'
    assert read(world, csv_of(world, text, "id bigint", extra="ignore")) == (
        {(1,): 1},
        [('2,"b\nc"', NUMBER), ('3,c,x,"\ny"', NUMBER)],
    )


def test_what_python_writes_is_what_is_read(world: Any) -> None:
    some = random.Random(5)
    signs = ["a", "ß", "\U0001f600", " ", ",", '"', "'", "\\", "#", "\t", "\n", "\r\n", "\r"]
    rows = [(str(n), "x" + "".join(some.choices(signs, k=some.randint(0, 8))) + "x") for n in range(3_000)]
    text = StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([("id", "name"), *rows])
    assert read(world, csv_of(world, "\ufeff" + text.getvalue())) == (Counter(rows), [])


def test_comments_and_options_of_lines(world: Any) -> None:
    text = '# a "comment|id;name|# no row, "|1; "a\n|b"|#2;"c|3;\'|'
    source = csv_of(world, text, comment="#", sep=";", lineSep="|", ignoreLeadingWhiteSpace=True)
    assert read(world, source) == ({("1", "a\n|b"): 1, ("3", "'"): 1}, [])


@pytest.mark.parametrize(
    ("encoding", "broken"),
    [("UTF-8", b"\xff"), ("UTF-8", b"\xe2\x82"), ("UTF-16", b"\x00\xdc"), ("UTF-16", b"\x00\xd8")],
)
def test_bytes_that_are_no_text_of_the_encoding(world: Any, encoding: str, broken: bytes) -> None:
    parts = ['id,name\n1,"größe\n2"\n2,"b', '\nc"\n3,d\n']
    first, last = parts[0].encode(encoding), parts[1].encode(encoding.replace("16", "16LE"))
    source = csv_of(world, first + broken + last, encoding=encoding)
    assert read(world, source) == (
        {("1", "größe\n2"): 1, ("3", "d"): 1},
        [('2,"b\ufffd\nc"', f"it contains bytes that are not {encoding}")],
    )


@pytest.mark.parametrize("kind", ["decimal(10,2)", "date", "timestamp", "double"])
def test_what_a_type_of_csv_cannot_hold(world: Any, kind: str) -> None:
    good, bad = CASES[kind]
    text = "v,w\n" + "".join(f'{text},"a\nb"\n' for text in (*good, *bad))
    rows, aside = read(world, csv_of(world, text, f"v {kind}, w string"))
    assert sum(rows.values()) == len(good)
    assert aside == sorted((f'{text},"a\nb"', f"v does not fit {kind}") for text in bad)


@pytest.mark.parametrize(
    "kind", ["decimal(10,2)", "date", "timestamp", "tinyint", "struct<a: struct<b: decimal(4,1)>>"]
)
def test_what_a_type_of_json_cannot_hold(world: Any, kind: str) -> None:
    good, bad = ([f'{{"v":\n {value}}}' for value in values] for values in VALUES[kind])
    source = json_of(world, "[" + ",\n".join([*good, *bad]) + "]", {"v": kind}, extra="ignore")
    rows, aside = read(world, source.on_bad_row("quarantine") >> with_columns(v="to_json(struct(v))"))
    assert sorted(text for text, _ in aside) == sorted(bad)
    assert sum(rows.values()) == len(good)


def test_names_of_json_and_fields_without_a_column(world: Any) -> None:
    text = '[{"ID": 1,\n "s": {"A": 1, "b": [2]}}, {"id": 2, "Id": 3}, {"id": 4, "x": "y"}]'
    source = json_of(world, text, "id bigint, s struct<a: int>", rescued="more").on_bad_row("quarantine")
    assert read(world, source >> drop("s")) == (
        {(1, '{"s":{"b":[2]}}'): 1, (4, '{"x":"y"}'): 1},
        [('{"id": 2, "Id": 3}', "its field id occurs twice")],
    )


def test_values_of_a_file_of_json(world: Any) -> None:
    text = '\ufeff{"id":\n1}\n[{"id": 2},\n 5, [{"id": 6}], "x"], {"id": 3}{"id": 4}\n[]\n{"id": 5} tail {"id": 9}\n'
    assert read(world, json_of(world, text, "id bigint")) == (
        {(n,): 1 for n in range(1, 6)},
        [
            ('"x"', NO_OBJECT),
            ("5", NO_OBJECT),
            ('[{"id": 6}]', NO_OBJECT),
            ('tail {"id": 9}\n', "the row does not parse"),
        ],
    )


@pytest.mark.landing
def test_json_that_ends_in_the_midst(world: Any) -> None:
    rows, aside = read(world, json_of(world, '[{"id": 1},\n{"id": 2}, {"id": "3', "id bigint"))
    assert rows == {(1,): 1, (2,): 1}
    assert aside == [('{"id": "3', "the row does not parse")]


def test_bytes_of_json_that_are_no_text(world: Any) -> None:
    content = '[{"n": "größe"},\n{"n": "'.encode() + b"\xff" + b'"}]'
    assert read(world, json_of(world, content, "n string")) == (
        {("größe",): 1},
        [('{"n": "\ufffd"}', "it contains bytes that are not UTF-8")],
    )


def test_columns_that_are_inferred(world: Any) -> None:
    folder = land(world.folder / "in", "a.json", '[{"id": 1,\n "n": "a"}, {"ID": 2}]')
    world.run(Files.source(str(folder), "json").option(multiLine=True) >> world.sink("a.t"))
    assert {tuple(map(str, row)) for row in world.rows("a.t")} == {("1", "a"), ("2", "None")}


def test_a_file_that_is_too_large_to_be_read_as_a_whole(world: Any) -> None:
    folder = land(world.folder / "in", "a.csv", "id\n1\n")
    with (folder / "b.csv").open("wb") as file:
        file.truncate((512 << 20) + 1)
    source = Files.source(str(folder), "csv", schema="id bigint").option(multiLine=True)
    with pytest.raises(RunError, match=r"b\.csv cannot be read: it has 536,870,913 bytes, and at most 536,870,912 can"):
        world.run(source >> world.sink("a.fail"))
    world.run(source.on_bad_file("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert world.rows("a.t") == {(1,): 1}
