"""Late rows that go to the quarantine: what the check asks of a pipeline."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helios import (
    Console,
    Iceberg,
    aggregate,
    dedupe,
    join,
    rename,
    select,
    session_window,
    sql,
    watermark,
    where,
    window,
)

pytestmark = pytest.mark.promise("late")

FOLLOWED = Iceberg.source("a.orders").incremental()
LATE = watermark("ts", "1 hour", on_late="quarantine")
HOURS = window("ts", "1 hour").group_by("id").agg(n="count(*)")
SINK = Iceberg.sink("a.t").quarantine("a.late")


@pytest.mark.parametrize(
    "stream",
    [
        FOLLOWED >> LATE >> HOURS,
        FOLLOWED >> where("id > 0") >> LATE >> select("id", "ts") >> dedupe("id", within="1 day"),
        FOLLOWED >> LATE >> dedupe("id", "ts"),
        FOLLOWED >> LATE >> session_window("ts", "1 hour").group_by("id").agg(n="count(*)") >> where("n > 1"),
        Iceberg.source("a.orders") >> LATE >> HOURS,
    ],
    ids=lambda stream: stream.text(),
)
def test_late_rows_can_be_quarantined(stream: Any, problems: Any, planned: Any) -> None:
    assert problems(stream >> SINK) == []
    plan = planned(stream >> SINK)
    assert "watermark(ts, 1 h, on_late=quarantine)" in str(plan)
    same = planned(stream >> SINK)
    assert same.state_texts == plan.state_texts


def test_where_late_rows_go_is_no_part_of_the_state(planned: Any) -> None:
    dropped = planned(FOLLOWED >> watermark("ts", "1 hour") >> HOURS >> SINK)
    assert planned(FOLLOWED >> LATE >> HOURS >> SINK).state_texts == dropped.state_texts


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (FOLLOWED >> LATE >> where("id > 0"), "no window and no dedupe after it"),
        (FOLLOWED >> HOURS >> rename({"window_start": "ts"}) >> LATE, r"the watermark comes after window\("),
        (FOLLOWED >> watermark("ts", "2 hours") >> LATE >> HOURS, "several watermarks"),
        (
            FOLLOWED >> LATE >> sql("SELECT id, ts FROM input") >> HOURS,
            r"sql\(SELECT id, ts.* comes before",
        ),
        (
            FOLLOWED >> LATE >> HOURS >> aggregate("window_start", n="sum(n)"),
            "several steps keep state",
        ),
        (
            FOLLOWED >> LATE >> join(FOLLOWED >> select("id", "name AS n"), on="id") >> dedupe("id", "ts"),
            "follows several sources",
        ),
        (
            FOLLOWED >> join(Iceberg.source("a.names") >> LATE, on="id") >> dedupe("id", "ts"),
            "the watermark is on a stream that is joined or united",
        ),
    ],
    ids=["stateless", "behind", "two", "sql", "state", "streams", "joined"],
)
def test_where_lateness_is_not_known_it_is_refused(stream: Any, why: str, problems: Any) -> None:
    found = [problem for problem in problems(stream >> SINK) if "so that it is not known which rows" in problem]
    assert len(found) == 1
    assert re.search(why, found[0])
    assert "leave on_late= out" in found[0]


def test_late_rows_need_a_quarantine(problems: Any) -> None:
    (problem,) = problems(FOLLOWED >> LATE >> HOURS >> Iceberg.sink("a.t"))
    assert "watermark(ts, 1 h, on_late=quarantine): Iceberg.sink(a.t) has no quarantine for rejected rows." in problem
    assert 'or write on_late="drop"' in problem
    found = problems(FOLLOWED >> LATE >> HOURS >> Console.sink())
    assert any("has no quarantine for rejected rows" in problem for problem in found)
