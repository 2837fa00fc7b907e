"""Deduplication of streams: what has no end and what cannot be chained is refused; what bounds it is taken."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helios import (
    Iceberg,
    aggregate,
    dedupe,
    join,
    rename,
    select,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)

pytestmark = pytest.mark.promise("typing")

FOLLOWED = Iceberg.source("a.orders").incremental()
SINK = Iceberg.sink("a.t")
BY_TIME = watermark("ts", "1h") >> dedupe("id", within="1d")


@pytest.mark.parametrize(
    "pipeline",
    [
        FOLLOWED >> BY_TIME >> SINK,
        FOLLOWED >> BY_TIME >> where("id > 1") >> join(Iceberg.source("a.orders") >> select("id"), on="id") >> SINK,
        FOLLOWED >> watermark("ts", "1h") >> dedupe("id", "TS") >> SINK,
        FOLLOWED >> watermark("ts", "1h") >> rename({"ts": "at"}) >> dedupe("id", "at") >> SINK,
        FOLLOWED >> watermark("ts", "1h") >> dedupe("id", "ts") >> window("ts", "1h").agg(n="count(*)") >> SINK,
        Iceberg.source("a.orders") >> dedupe("id") >> SINK,
        Iceberg.source("a.orders") >> BY_TIME >> window("ts", "1h").agg(n="count(*)") >> SINK,
        FOLLOWED >> step(lambda df: df) >> dedupe("id") >> SINK,  # known at run
        FOLLOWED >> watermark("ts", "1h") >> select("id", "ts AS at") >> dedupe("id", "at") >> SINK,
        FOLLOWED >> watermark("ts", "1h") >> with_columns(at="ts") >> dedupe("id", "at") >> SINK,
        FOLLOWED >> watermark("ts", "1h") >> rename({"ts": "a", "a": "b"}) >> dedupe("id", "b") >> SINK,
    ],
    ids=lambda pipeline: pipeline.text(),
)
def test_what_has_an_end_is_taken(planned: Any, pipeline: Any) -> None:
    assert planned(pipeline)


ENDLESS = r"dedupe\(id\) on a followed source would remember every key for ever\..*dedupe\(\"id\", within="
AFTER = r"comes after dedupe\(id, within=1 d\), and both keep state: .*follow that table in a second pipeline"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (FOLLOWED >> dedupe("id") >> SINK, ENDLESS),
        (FOLLOWED >> watermark("ts", "1h") >> dedupe("id") >> SINK, ENDLESS),
        (FOLLOWED >> dedupe("id") >> watermark("ts", "1h") >> SINK, ENDLESS),
        (FOLLOWED >> watermark("ts", "1h") >> rename({"ts": "id2"}) >> dedupe("id") >> SINK, ENDLESS),
        (FOLLOWED >> union(FOLLOWED >> dedupe("id")) >> SINK, ENDLESS),
        (FOLLOWED >> BY_TIME >> window("ts", "1h").agg(n="count(*)") >> SINK, r"window\(.*" + AFTER),
        (FOLLOWED >> BY_TIME >> aggregate("name", n="count(*)") >> SINK.upsert("name"), r"aggregate\(.*" + AFTER),
        (FOLLOWED >> BY_TIME >> dedupe("name", within="1h") >> SINK, r"dedupe\(name.*" + AFTER),
        (FOLLOWED >> BY_TIME >> union(FOLLOWED) >> aggregate("id", n="count(*)") >> SINK.upsert("id"), AFTER),
        (FOLLOWED >> union(FOLLOWED >> BY_TIME) >> aggregate("id", n="count(*)") >> SINK.upsert("id"), AFTER),
        (FOLLOWED >> select("id") >> join(FOLLOWED >> BY_TIME >> select("id"), on="id") >> SINK, r"join\(.*" + AFTER),
        (
            FOLLOWED
            >> watermark("ts", "1h")
            >> window("ts", "1h").agg(n="count(*)")
            >> dedupe("n", within="1h")
            >> SINK,
            r"dedupe\(n, within=1 h\) comes after window\(",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.text(),
)
def test_what_has_no_end_or_no_watermark_is_refused(problems: Any, pipeline: Any, message: str) -> None:
    found = problems(pipeline)
    assert any(re.search(message, problem) for problem in found), found
    assert all("test_dedupes.py:" in problem for problem in found)


def test_the_state_of_a_dedupe_is_told_by_its_text(planned: Any) -> None:
    plan = planned(FOLLOWED >> BY_TIME >> SINK)
    assert plan.state_texts == ("watermark(ts, 1 h)", "dedupe(id, within=1 d) by event time", plan.reads[0].name)
