"""A step that needs event time says so where no watermark declares it."""

from __future__ import annotations

from typing import Any

import pytest

from helios import Files, Iceberg, dedupe, join, select, step, watermark, where

pytestmark = pytest.mark.promise("typing")

FOLLOWED = Iceberg.source("a.orders").incremental()
SINK = Iceberg.sink("a.t")
WITHIN = dedupe("id", within="1h")


@pytest.mark.parametrize(
    "flow",
    [
        FOLLOWED >> WITHIN,
        FOLLOWED >> where("id > 0") >> WITHIN >> watermark("ts", "1h"),
        Files.source("x", "csv", schema="id bigint, ts timestamp").incremental() >> WITHIN,
        FOLLOWED >> join(Iceberg.source("a.orders") >> select("id", "name AS n"), on="id") >> WITHIN,
        FOLLOWED >> select("id") >> join(FOLLOWED >> WITHIN, on="id"),
    ],
    ids=lambda flow: flow.text(),
)
def test_dedupe_within_needs_a_watermark_before_it(flow: Any, problems: Any) -> None:
    problem = next(one for one in problems(flow >> SINK) if "no watermark" in one)
    assert "dedupe(id, within=1 h): within= is a span of event time, and no watermark before it" in problem
    assert 'Fix: put a watermark before it: watermark("ts", "10 minutes") >> dedupe("id", within="1 h").' in problem


def test_the_fix_names_the_timestamp_of_the_stream(problems: Any) -> None:
    (problem,) = problems(FOLLOWED >> select("id", "ts AS seen_at") >> WITHIN >> SINK)
    assert 'watermark("seen_at", "10 minutes")' in problem


@pytest.mark.parametrize(
    "flow",
    [
        FOLLOWED >> watermark("ts", "1h") >> WITHIN,
        FOLLOWED >> watermark("ts", "1h") >> where("id > 0") >> WITHIN,
        FOLLOWED >> select("id") >> join(FOLLOWED >> watermark("ts", "1h"), on="id") >> WITHIN,
        FOLLOWED >> step(lambda df: df.withWatermark("ts", "1 hour")) >> WITHIN,
        Iceberg.source("a.orders") >> WITHIN,
    ],
    ids=lambda flow: flow.text(),
)
def test_with_one_or_without_a_stream_there_is_no_problem(flow: Any, problems: Any) -> None:
    assert problems(flow >> SINK) == []
