"""A line of JSON is one value: what Spark would leave out, round or guess is a bad row."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from helios import Files, drop, with_columns
from helios.errors import InputError, RunError
from tests.streaming.landing import land, read

pytestmark = pytest.mark.promise("bad-rows")

MORE = (
    '{"id":1}{"id":2}\n{"id":3}\n',
    '{"id":3}\n{"id":1},{"id":2}\n',
    '{"id":1} garb"age\n',
    '{"id":1,"more":{"a":[1,{"b":2}]}} {"id":2}\n',
    '[{"id":1},{"id":2}] {"id":3}\n',
)
ONE = (
    '{"id":1},\n{"id":2}\r\n\n  {"id":3}  \n',
    '{"id":1,"more":{"a":[1,{"b":2}],"c":"}{"}}\n{"id":2,"more":null}\n{"id":3}\n',
    '[{"id":1},{"id":2}]\n{"id":3}\n',
)


def source(world: Any, text: str, **options: Any) -> Any:
    folder = land(world.folder / "in", "a b.json", text)
    return Files.source(str(folder), "json", schema="id bigint", extra="ignore").option(**options)


@pytest.mark.parametrize("text", MORE)
def test_a_line_of_more_than_one_value_is_a_bad_row(world: Any, text: str) -> None:
    made = source(world, text)
    more = [line for line in text.splitlines() if line != '{"id":3}']
    with pytest.raises(RunError, match=r"in/a b\.json, line \d: it holds more than one JSON value"):
        world.run(made >> world.sink("a.fail"))
    world.run(made.on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert world.ids("a.t") == ([3] if '{"id":3}' in text.splitlines() else [])
    assert [json.loads(payload)["text"] for (payload,) in world.rows("a.q", "payload").elements()] == more


@pytest.mark.parametrize("text", ONE)
def test_one_value_is_read(world: Any, text: str) -> None:
    world.run(source(world, text) >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2, 3]


def landed(world: Any, *lines: str | bytes) -> str:
    content = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    return str(land(world.folder / "in", "a.json", content))


def test_a_text_keeps_the_leading_zeros_of_a_number(world: Any) -> None:
    folder = land(
        world.folder / "in", "a.json", '{"id":"1","n":007}\n{"id":-02,"n":[00.50,{"a":01}]}\n{"n":0,"id":10}\n'
    )
    made = Files.source(str(folder), "json", schema="id string, n string").option(allowNumericLeadingZeros=True)
    assert read(world, made) == ({("1", "007"): 1, ("-02", '[00.50,{"a":01}]'): 1, ("10", "0"): 1}, [])


VALUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "decimal(10,2)": (
        ("1.25", "1.2500", '"1.25"', "-3", "12e-1", "null"),
        ("1.255", '"1,25"', '"x"', "true", "1e9", "1e-20", '"1.\\u0662"'),
    ),
    "decimal(38,18)": (("1.100000000000000001", "12345678901234567890.100000000000000001"), ()),
    "date": (('"2026-01-01"', '"2026-01-01T00:00:00Z"'), ('"2026-01-01 23:59:59"', '"2026"', "20260101")),
    "timestamp": (
        ('"2026-01-01T12:30:00.5+02:00"', "1700000000"),
        ('"12:30"', '"2026-01-01T12:30:00.1234567Z"', "1.5", "1700000000000", "-99999999999"),
    ),
    "timestamp_ntz": (('"2026-01-01 12:30:00"',), ('"2026-01-01T00:00:00Z"', "1700000000")),
    "double": (("1", "1.5", '"NaN"', "-1.5e3"), ("1e400", "true", '"x"')),
    "tinyint": (("-128", "127"), ("200", "-129", "1.5")),
    "bigint": (("1", "null"), ("1.5", '"1"', "9223372036854775808")),
    "boolean": (("true",), ('"true"', "1")),
    "string": (("1", "1.10", '"a"', "true", r'"\ud83d\ude00"'), (r'"\ud800"', r'"\udc00 x"', r'"\ude00\ud83d"')),
    "array<decimal(4,1)>": (("[1.5, null]", "[]"), ("[1.55]", "1")),
    "map<string,date>": (('{"a": "2026-01-01"}',), ('{"a": "2026"}', '{"a": null, "a": null}', r'{"\udc00": null}')),
    "struct<a: struct<b: decimal(4,1)>>": (('{"a": {"b": 1.5}}', '{"A": {"B": 1.5}}', "{}"), ('{"a": {"b": 1.55}}',)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_a_type_cannot_hold_is_a_bad_row(world: Any, kind: str) -> None:
    good, bad = ([f'{{"v": {value}}}' for value in values] for values in VALUES[kind])
    folder = landed(world, *good, *bad)
    made = Files.source(folder, "json", schema={"v": kind}, extra="ignore").on_bad_row("quarantine")
    rows, aside = read(world, made >> with_columns(v="to_json(struct(v))") if "<" in kind else made)
    assert sorted(text for text, _ in aside) == sorted(bad)
    assert sum(rows.values()) == len(good)
    if kind == "decimal(38,18)":
        assert rows == {(Decimal(text[6:-1]),): 1 for text in good}
    if kind == "string":
        assert rows == {("1",): 1, ("1.10",): 1, ("a",): 1, ("true",): 1, ("\U0001f600",): 1}


@pytest.mark.short
def test_names_go_without_regard_to_case(world: Any) -> None:
    folder = landed(world, '{"ID": 1, "more": {"B": "x"}}', '{"id": 2, "MORE": {"b": "y"}}', '{"Id": 3, "iD": 4}')
    twice = [('{"Id": 3, "iD": 4}', "its field id occurs twice")]
    declared = Files.source(folder, "json", schema="id bigint, more struct<b: string>")
    world.run(declared.on_bad_row("drop") >> with_columns(b="more.b") >> drop("more") >> world.sink("a.d"))
    assert world.rows("a.d") == {(1, "x"): 1, (2, "y"): 1}
    named = Files.source(folder, "json").on_bad_row("quarantine") >> with_columns(b="more.b") >> drop("more")
    rows, aside = read(world, named)
    assert (rows, [(text, why.lower()) for text, why in aside]) == ({(1, "x"): 1, (2, "y"): 1}, twice)


def test_bytes_and_values_that_are_no_json(world: Any) -> None:
    folder = landed(
        world,
        '{"id": 1}',
        b'{"id": 2, "name": "gr\xf6\xdfe"}',
        "",
        "  ",
        "[]",
        '[] {"id": 4}',
        '"text"',
        "[1]",
        '[{"id": 3}, 5]',
    )
    rows, aside = read(world, Files.source(folder, "json", schema="id bigint, name string"))
    assert rows == {(1, None): 1}
    assert aside == [
        ('"text"', "it is neither a JSON object nor an array of JSON objects"),
        ("[1]", "it is neither a JSON object nor an array of JSON objects"),
        ('[] {"id": 4}', "it holds more than one JSON value, and Spark would read only the first"),
        ('[{"id": 3}, 5]', "it is neither a JSON object nor an array of JSON objects"),
        ('{"id": 2, "name": "gr\ufffd\ufffde"}', "it contains bytes that are not UTF-8"),
    ]


def test_what_has_no_column_is_rescued_wherever_it_is(world: Any) -> None:
    lines = {
        '{"id":1,"x":1.10,"y":{"a":[1,"\\u00e4"]}}': '{"x":1.10,"y":{"a":[1,"ä"]}}',
        '{"id":2,"s":{"a":1,"b":2},"m":{"k 1":{"a":1,"c":null}},"l":[{"a":1},{"a":2,"d":"e"}]}': (
            '{"s":{"b":2},"m":{"k 1":{"c":null}},"l":[null,{"d":"e"}]}'
        ),
        '{"id":3,"s":{"A":1}}': None,
    }
    schema = "id bigint, s struct<a: int>, m map<string, struct<a: int>>, l array<struct<a: int>>"
    source = Files.source(landed(world, *lines), "json", schema=schema, rescued="the rest")
    world.run(source >> drop("s", "m", "l") >> world.sink("a.t"))
    assert world.rows("a.t") == dict.fromkeys(enumerate(lines.values(), start=1), 1)


def test_times_are_meant_in_the_time_zone(world: Any) -> None:
    good, bad = '{"a": ["2026-01-01 12:30"], "s": {"b": 0, "c": 1.5}}', '{"a": [], "s": {"b": "12:30"}}'
    source = Files.source(
        landed(world, good, bad), "json", schema="a array<timestamp>, s struct<b: timestamp, c: double>"
    )
    source = source.option(timeZone="Europe/Berlin").on_bad_row("quarantine")
    rows, aside = read(world, source >> with_columns(a="cast(a[0] AS string)", s="to_json(s)"))
    assert rows == {("2026-01-01 11:30:00", '{"b":"1970-01-01T00:00:00.000Z","c":1.5}'): 1}
    assert [text for text, _ in aside] == [bad]


def test_a_number_beside_a_format_is_a_timestamp_that_there_is(world: Any) -> None:
    good = '{"at": 1700000000}', '{"at": "14.11.2023 22:13"}'
    bad = ('{"at": 18446744073710}', '{"at": -99999999999999999999}', '{"at": "14.11.2023 22:13:20"}')
    source = Files.source(landed(world, *good, *bad), "json", schema="at timestamp")
    rows, aside = read(world, source.option(timestampFormat="dd.MM.yyyy HH:mm"))
    assert sorted(str(at) for (at,) in rows) == ["2023-11-14 22:13:00+00:00", "2023-11-14 22:13:20+00:00"]
    assert sorted(text for text, _ in aside) == sorted(bad)


def test_decimals_of_a_locale_are_refused(world: Any) -> None:
    source = Files.source(landed(world, '{"v": ["1,25"]}'), "json", schema="v array<decimal(10,2)>")
    with pytest.raises(InputError, match="a decimal of json may be a number or a text of the locale"):
        world.run(source.option(locale="de-DE") >> world.sink("a.t"))


def test_half_of_a_surrogate_pair_that_would_be_rescued_makes_a_bad_row(world: Any) -> None:
    half = "its text holds half of a surrogate pair"
    bad = (r'{"id":1,"x":"\ud800"}', r'{"id":2,"\ud800":1}')
    folder = landed(world, *bad, r'{"id":3,"s":{"a":"\ud800"}}')
    assert read(world, Files.source(folder, "json", schema="id bigint, s string", rescued="more")) == (
        {(3, r'{"a":"\ud800"}', None): 1},
        [(line, half) for line in bad],
    )


def test_fields_inside_a_map_are_no_less_than_others(world: Any) -> None:
    folder, schema = landed(world, '{"id":1,"m":{"k":{"a":1,"b":2}}}'), "id bigint, m map<string, struct<a: int>>"
    with pytest.raises(InputError, match=r"has columns that the declared schema lacks: m\.k\.b"):
        world.run(Files.source(folder, "json", schema=schema) >> world.sink("a.fail"))
    grown = Files.source(folder, "json", schema=schema, extra="add")
    world.run(grown >> with_columns(b="m['k'].b") >> drop("m") >> world.sink("a.t"))
    assert world.rows("a.t") == {(1, 2): 1}


def test_each_object_of_an_array_is_judged_by_itself(world: Any) -> None:
    bad = ['{"id":"12,50"}', '{"id":3000000000}', '{"id":4,"s":5}', '{"ID": 5, "more": {"y": [1]}}']
    folder = landed(world, f'[{{"id":1}}, {", ".join(bad)}, {{"id":2, "s": {{"x": 7}}}}]')
    source = Files.source(folder, "json", schema="id int, s struct<x: int>", extra="add")
    world.run(
        source.on_bad_row("quarantine")
        >> with_columns(x="s.x")
        >> drop("s", "more")
        >> world.sink("a.t").quarantine("a.q")
    )
    assert world.rows("a.t", "id", "x") == {(1, None): 1, (2, 7): 1, (5, None): 1}
    assert sorted(json.loads(payload)["text"] for (payload,) in world.rows("a.q", "payload").elements()) == bad[:3]


def test_fields_that_no_column_takes_are_a_bad_row_where_their_names_were_not_seen(world: Any) -> None:
    good, bad = '{"a": {"x": 1}}', ('{"": 5}', '{"a": "oops"}', '{"a": {"x": 1, "y": 2}}')
    rows, aside = read(
        world,
        Files.source(landed(world, good, *bad), "json", schema="a struct<x: int>").on_bad_row("quarantine")
        >> with_columns(a="a.x"),
    )
    assert rows == {(1,): 1}
    assert aside == [
        ('{"": 5}', 'it has fields that the columns lack: {"":5}'),
        ('{"a": "oops"}', "the row does not parse"),
        ('{"a": {"x": 1, "y": 2}}', 'it has fields that the columns lack: {"a":{"y":2}}'),
    ]


def test_a_line_that_is_too_large_to_be_taken_apart_is_a_bad_row(world: Any) -> None:
    """Its array's objects and their texts are more than Jackson takes as one text."""
    line = f'[{{"id": 1, "a": "{"x" * 10_500_000}"}}, {{"id": 2, "a": "x"}}]'
    folder = land(world.folder / "in", "a.json", line + '\n{"id": 3, "a": "y"}\n')
    rows, aside = read(world, Files.source(str(folder), "json", schema="id bigint, a string"))
    assert rows == Counter([(3, "y")])
    assert [(text == line, why) for text, why in aside] == [(True, "the row does not parse")]


@pytest.mark.parametrize(("unit", "numbers"), [("s", 1), ("ms", 10**3), ("us", 10**6)])
def test_numbers_for_timestamps_count_what_is_declared(world: Any, unit: Any, numbers: int) -> None:
    wrong = 1_700_000_000 * numbers * 1000
    folder = landed(world, f'{{"at":{1_700_000_000 * numbers}}}', f'{{"at":{wrong}}}', '{"at":"2026-01-01T00:00:00Z"}')
    rows, aside = read(world, Files.source(folder, "json", schema="at timestamp", timestamps=unit))
    assert sorted(at.isoformat() for (at,) in rows) == ["2023-11-14T22:13:20+00:00", "2026-01-01T00:00:00+00:00"]
    [(text, reason)] = aside
    assert text == f'{{"at":{wrong}}}'
    assert "outside of the years 1 to 9999" in reason
    assert 'write timestamps="ms" or "us"' in reason if unit == "s" else f"in {unit}" in reason


@pytest.mark.parametrize(
    ("lines", "kind", "values"),
    [
        (('{"id":1,"more":{}}', '{"id":2}'), "string", ["{}", None]),
        (('{"id":1,"more":[{}]}', '{"id":2}'), "array<string>", [["{}"], None]),
        (
            ('{"id":1,"more":{"a":{}}}', '{"id":2,"more":{"a":{},"b":1}}'),
            "struct<a:string,b:bigint>",
            [{"a": "{}", "b": None}, {"a": "{}", "b": 1}],
        ),
        (('{"id":1,"more":{}}', '{"id":2,"more":{"b":1}}'), "struct<b:bigint>", [{"b": None}, {"b": 1}]),
        (('[{"id":1,"more":{}},{}]', '{"id":2}'), "string", ["{}", None, None]),
    ],
    ids=["field", "array", "nested", "some", "elements"],
)
def test_an_object_without_fields_is_read_without_a_schema(world: Any, lines: Any, kind: str, values: Any) -> None:
    world.run(Files.source(landed(world, *lines), "json") >> world.sink("a.t"))
    table = world.load("a.t").iceberg.scan().to_arrow().sort_by([("id", "ascending")])
    assert table["more"].to_pylist() == values
    kinds = {row.col_name: row.data_type for row in world.sql("DESCRIBE local.a.t")}
    assert (kinds["id"], kinds["more"]) == ("bigint", kind)
