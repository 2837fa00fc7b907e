"""Bodies drawn at random: what was answered with 200 is in the table as it was sent, the rest was refused with 4xx."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helios import Webhook
from helios.sources.webhook.receiving import receiving
from tests.unit.webhooks.test_receiver import SECRET, post

pytestmark = pytest.mark.promise("webhook")

SCHEMA = (
    "id bigint NOT NULL, s string, small tinyint, d decimal(8,2), wide decimal(38,30), day date, at timestamp, "
    "local timestamp_ntz, ok boolean, f float, g double, raw binary, tags array<int>, m map<string,double>, "
    "more struct<a:int,At:timestamp>"
)

DAYS = ("2026-01-01", "20260101", "2026-W01-1", "0001-01-01", "9999-12-31", "2026-02-30", "2026-1-1", "-2026-01-01")
CLOCKS = (
    "", "T10", "T10:11", "T10:11:12", " 10:11:12", "t10:11:12", "T24:00:00", "T10:11:60", "T10:11:12.5", "T10:11:12,5",
    "T10:11:12.123456", "T10:11:12.1234567", "T10:11:12.123456789", "T10:11:12.123456000", "T101112", "T10:11:12.",
)  # fmt: skip
ZONES = ("", "", "Z", "Z", "z", "+01:00", "-0130", "+01", "+18:00", "-18:00", "+18:01", "+23:59", "+01:00:30", " UTC")
TEXTS = (
    '""', '"a"', '"\\u0000"', '"\\ud800"', '"\\ude00\\ud83d"', '"\\ud83d\\ude00"', '"\\\\ud800"', '"é\\r\\n\\t"',
    '{"a": "\\udfff"}', '{"a": [1.10, {}]}', "[1,  2]", "true", "null", "1.10", "1e400", "-0.0", "'a'", '"a\tb"',
    '"\u2028"', "[" * 300 + "]" * 300, "[" * 900 + "]" * 900, "1" * 999, "1" * 1001, "1" * 5000,
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "1.0", "1.10", "127", "128", "-129", "99999999999", "1e2", "1E+2", "12e-1", "1e400", "-1e400",
    "3.4028235e38", "3.4028236e38", "1e39", "1e-400", "0e400", "0e-9", "1e99999999999999999999", "999999.99",
    "1234567", "1.0000000000000000000000000000001", "12345678.123456789012345678901234567890", "1" * 30, "1" * 400,
    "1." + "0" * 60, "1." + "0" * 1001, "100000000000000000000000000000000000000000e-41", "01", "+1", ".5", "1.", "NaN",
    "Infinity", '"1"', "true", "null", "0x10", "1_000",
)  # fmt: skip
RAWS = ('""', '"aGk="', '"aGl="', '"aGk"', '"aG k="', '"aGk=aGk="', '"-_-_"', "5")


def a_time(chosen: random.Random) -> str:
    return json.dumps(chosen.choice(DAYS) + chosen.choice(CLOCKS) + chosen.choice(ZONES))


def a_day(chosen: random.Random) -> str:
    return json.dumps(chosen.choice(DAYS) + chosen.choice(("", "", "", "T00:00:00", "\n")))


def a_number(chosen: random.Random) -> str:
    drawn = f"{chosen.choice(('', '-'))}{chosen.randrange(10 ** chosen.randrange(1, 12))}"
    fraction = f".{chosen.randrange(10**6)}" if chosen.random() < 0.5 else ""
    power = f"e{chosen.randrange(-9, 9)}" if chosen.random() < 0.3 else ""
    return chosen.choice((chosen.choice(NUMBERS), drawn + fraction + power))


def a_list(chosen: random.Random) -> str:
    return f"[{', '.join(a_number(chosen) for _ in range(chosen.randrange(3)))}]"


def a_map(chosen: random.Random) -> str:
    names = ("a", "A", "", "\\ud800", "k" * 50_001)
    pairs = [f'"{chosen.choices(names, (9, 9, 3, 1, 1))[0]}": {a_number(chosen)}' for _ in range(chosen.randrange(3))]
    return f"{{{', '.join(pairs)}}}"


def a_struct(chosen: random.Random) -> str:
    fields = {"a": a_number, "A": a_number, "at": a_time, "AT": a_time, "b": a_number}
    names = chosen.sample(list(fields), chosen.randrange(3))
    pairs = [f'"{name}":{fields[name](chosen)}' for name in names]
    return f"{{{', '.join(pairs)}}}"


COLUMNS: dict[str, Callable[[random.Random], str]] = {
    "s": lambda chosen: chosen.choice(TEXTS),
    "small": a_number,
    "d": a_number,
    "wide": a_number,
    "day": a_day,
    "at": a_time,
    "local": a_time,
    "ok": lambda chosen: chosen.choice(("true", "false", "null", '"true"', "1")),
    "f": a_number,
    "g": a_number,
    "raw": lambda chosen: chosen.choice(RAWS),
    "tags": a_list,
    "m": a_map,
    "more": a_struct,
    "S": lambda chosen: '"folded"',
    "ID": lambda chosen: "5",
    "_webhook_id": lambda chosen: '"mine"',
    "undeclared": a_number,
    "\\u0073": lambda chosen: '"escaped"',
}
RARE = ("S", "ID", "_webhook_id", "undeclared", "\\u0073")


def a_body(number: int, chosen: random.Random) -> bytes:
    """One to three columns, each with a value that is often near what it takes."""
    weights = [0.2 if name in RARE else 1.0 for name in COLUMNS]
    names = dict.fromkeys(chosen.choices(list(COLUMNS), weights, k=chosen.choice((1, 1, 2, 3))))
    fields = [f'"id":{number}', *(f'"{name}": {COLUMNS[name](chosen)}' for name in names)]
    space = chosen.choice((" ", "\r\n", "\t"))
    return f"{{{space}{f',{space}'.join(fields)}{space}}}".encode()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "bodies", [pytest.param(300, marks=pytest.mark.landing), pytest.param(2000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("extra", ["fail", "ignore"])
def test_what_got_200_is_in_the_table(world: Any, bodies: int, extra: Any) -> None:
    chosen = random.Random(bodies + len(extra))
    sent = {number: a_body(number, chosen) for number in range(bodies)}
    source = Webhook.source("/any", SECRET, SCHEMA, extra=extra).listen("127.0.0.1:0")
    source = source.segments(str(world.folder / "segments"))
    with receiving([source]) as (url,), ThreadPoolExecutor(8) as pool:
        answers = dict(zip(sent, pool.map(lambda n: post(url, sent[n], f"m{n}"), sent), strict=True))
    accepted = {number for number, (status, _) in answers.items() if status == 200}
    assert {status for status, _ in answers.values()} == {200, 422}
    assert bodies / 5 < len(accepted) < bodies * 4 / 5
    world.run(source >> world.sink("a.t"))  # a bad row would stop it
    rows = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    assert Counter(row["id"] for row in rows) == Counter(accepted)
    for row in rows:
        _same(json.loads(sent[row["id"]], parse_float=lambda text: text), row)


def _same(body: dict[str, Any], row: dict[str, Any]) -> None:
    """Compares what can be told without the code under test: numbers, days, times and bytes."""
    for name, value in {name.lower(): value for name, value in body.items()}.items():
        found = row.get(name)
        if name == "undeclared" or isinstance(value, dict | list) or value is None:
            continue
        if name == "at":
            assert found == _instant(value), (value, found)
        elif name == "day":
            assert found.isoformat() == value
        elif name in ("d", "small", "id"):
            assert float(found) == float(value)
        elif name == "raw":
            assert found == base64.b64decode(value)
        elif name == "s" and isinstance(value, str) and "." not in value and "e" not in value:
            assert found == value


def _instant(text: str) -> datetime:
    """Python's own reading; an offset without minutes, or without a colon, is brought to its form."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)


def test_fractions_are_cut_where_the_source_says_so(world: Any) -> None:
    source = Webhook.source("/any", SECRET, "id bigint, at timestamp, s string").listen("127.0.0.1:0")
    source = source.segments(str(world.folder / "segments"))
    at = "2026-01-01T10:11:12.123456789Z"  # as Go writes it
    body = json.dumps({"id": 1, "at": at, "s": at}).encode()
    with receiving([source]) as (url,):
        status, found = post(url, body, "m1")
        assert (status, found["error"]) == (
            422,
            f'at is not of type timestamp: "{at}" (the fraction of a second has more than six digits)',
        )
    with receiving([source.fractions("truncate")]) as (url,):
        assert post(url, body, "m1") == (200, {"status": "accepted"})
    world.run(source.fractions("truncate") >> world.sink("a.t"))
    cut = datetime(2026, 1, 1, 10, 11, 12, tzinfo=UTC) + timedelta(microseconds=123456)
    [row] = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    assert row == {"id": 1, "at": cut, "s": at}
