"""Sources, sinks, steps and values refuse what cannot be, with the line and the fix."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios import (
    Files,
    Iceberg,
    Memory,
    aggregate,
    bucket,
    day,
    dedupe,
    drop,
    identity,
    join,
    param,
    rename,
    select,
    step,
    truncate,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.errors import DeclarationError, near_miss
from helios.model import values
from helios.model.values import Identifier, Secret, duration, show_seconds

SOURCE = Memory.source([{"id": 1}])


@pytest.mark.parametrize(
    ("given_", "seconds"),
    [
        (60, 60),
        ("30s", 30),
        ("5 minutes", 300),
        ("1h", 3600),
        ("200ms", 0.2),
        ("2 days", 172800),
        (timedelta(hours=1), 3600),
        ("7", 7),
    ],
)
def test_durations(given_: Any, seconds: float) -> None:
    assert duration(given_, "poll") == pytest.approx(seconds)


@given(st.integers(1, 10**6), st.sampled_from(["s", "m", "h", "d"]))
def test_durations_say_what_they_are(number: int, unit: str) -> None:
    seconds = duration(f"{number}{unit}", "poll")
    assert duration(show_seconds(seconds), "poll") == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize("name", ["a.b", "c.a.b", "a.`b.c`", "ünï.tablé", "a.b-c", "a.with space"])
def test_names_that_are_tables(name: str) -> None:
    assert str(Identifier.parse(name)) == name


@pytest.mark.parametrize(
    "name", ["", "orders", "a..b", ".a.b", "a.b.", "a/../b.c", "../../etc.x", "a.b\n", "a.``", "a\\b.c", "a. "]
)
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(DeclarationError):
        Iceberg.source(name)


@given(st.text(max_size=12))
def test_an_accepted_name_is_safe_and_round_trips(text: str) -> None:
    try:
        parsed = Identifier.parse(text)
    except DeclarationError:
        return
    assert all(part.strip() and not set("/\\") & set(part) and part != ".." for part in parsed.parts)
    assert Identifier.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Iceberg.source("a.t").incremental(poll="5 parsecs"), r"unknown unit 'parsecs'\. Known: "),
        (lambda: Iceberg.source("a.t").incremental(poll="5 minuts"), "Did you mean 'minutes'"),
        (lambda: Iceberg.source("a.t").incremental(poll=0), "not a positive duration"),
        (lambda: Iceberg.source("a.t").incremental(poll=True), "not a duration"),
        (lambda: Iceberg.source("a.t").incremental(poll="soon"), "not a duration"),
        (lambda: Iceberg.source("../x.t"), "is not a table name"),
        (lambda: Iceberg.source(5), "must be text"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("orders"), 'has no namespace.*"namespace.orders"'),
        (lambda: Iceberg.sink("a.t").partition_by(), "needs fields"),
        (lambda: Iceberg.sink("a.t").partition_by(5), "not 5"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("a.t").partition_by(day("a"), day("a")), "each once"),
        (lambda: Iceberg.sink("a.t").format_version(1), "2 or 3"),
        (lambda: Iceberg.sink("a.t").flush(rows=0), "positive number"),
        (lambda: Iceberg.sink("a.t").checkpoint(""), "needs a location"),
        (lambda: Iceberg.sink("a.t").snapshot_properties({"helios.batch": "1"}), "kept by Helios"),
        (lambda: Iceberg.sink("a.t").snapshot_properties({"total-records": "1"}), "kept by Iceberg"),
        (lambda: Iceberg.sink("a.t").table_properties({"a": 1}), "must both be text"),  # type: ignore[dict-item]
        (lambda: bucket(0, "a"), "needs a positive number"),
        (lambda: bucket("a", 4), "needs a positive number, then a column"),  # type: ignore[arg-type]
        (lambda: truncate(-1, "a"), "needs a positive number"),
        (lambda: Files.source("data/x"), "the format cannot be told"),
        (lambda: Files.source("data/x", "parket"), "Did you mean 'parquet'"),
        (lambda: Files.source(""), "needs a path"),
        (lambda: Files.source("x.csv").incremental(max_files=0), "positive number"),
        (lambda: Memory.source([]), "cannot tell the columns"),
        (lambda: Memory.source([(1,)]), "cannot tell the columns"),
        (lambda: where(5), "where takes text"),  # type: ignore[arg-type]
        (select, "at least one column"),
        (drop, "at least one column"),
        (dedupe, "at least one key"),
        (with_columns, "at least one column"),
        (lambda: rename({"a": ""}), "rename takes text"),
        (lambda: aggregate("a"), "at least one column"),
        (lambda: join(SOURCE, on="id", how="iner"), "Did you mean 'inner'"),
        (lambda: join(SOURCE, on=[]), "at least one column in on="),
        (lambda: join("a.t", on="id"), "takes a source or a stream, not str"),  # type: ignore[arg-type]
        (lambda: union(5), "takes a source or a stream"),  # type: ignore[arg-type]
        (lambda: step(5), "is not callable"),  # type: ignore[arg-type]
        (lambda: watermark("ts", "-1s"), "not a duration"),
    ],
)
def test_refusals(declare: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        declare()
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_declarations.py")


def test_builders_return_new_values() -> None:
    sink = Iceberg.sink("a.t")
    built = sink.partition_by(day("ts"), "kind").exactly_once().append().create(False).flush(rows=5, every="1m")
    assert sink.partitioning is None
    assert built.partitioning == (day("ts"), identity("kind"))
    assert (built.flush_rows, built.flush_every, built.creates) == (5, 60.0, False)
    assert built.flush(rows=6).flush_every == 60.0


def test_partition_field_names_are_icebergs() -> None:
    names = [f.name for f in (identity("a"), bucket(4, "a"), truncate(2, "a"), day("a"))]
    assert names == ["a", "a_bucket", "a_trunc", "a_day"]


def test_texts_of_steps() -> None:
    assert window("ts", "1 hour", "10m").group_by("k").agg(n="count(*)").text() == (
        "window(ts, 1 h, every 600 s).group_by(k).agg(n=count(*))"
    )
    assert watermark("ts", "90s").text() == "watermark(ts, 90 s)"
    assert dedupe("id", within="1h").text() == "dedupe(id, within=1 h)"


def test_secrets_are_never_shown() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r}" == "*** ***"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert {secret: 1}[Secret("hunter2")] == 1


def test_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(values.PARAMETERS, "n", "5")
    monkeypatch.setitem(values.PARAMETERS, "flag", "yes")
    monkeypatch.setitem(values.PARAMETERS, "bad", "x")
    assert param("n", 1) == 5
    assert param("flag", False) is True
    assert param("absent", "default") == "default"
    assert param("n", "", parse=lambda text: text * 2) == "55"
    with pytest.raises(DeclarationError, match="--set bad=x: not a int"):
        param("bad", 1)


def test_near_misses() -> None:
    assert near_miss("ORDERS", ["orders"]) == "Did you mean 'orders'?"
    assert near_miss("zzz", [f"t{i:02}" for i in range(20)]).endswith("t11 and 8 more.")
