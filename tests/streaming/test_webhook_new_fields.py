"""Fields that no schema declares, with values of changing types: each delivery that got 200 is in the table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helios import Webhook, cast
from helios.errors import CheckFailed
from helios.sources.webhook.receiving import receiving
from tests.unit.webhooks.test_receiver import SECRET, post

pytestmark = pytest.mark.promise("webhook")

VALUES = {
    "1": "1",
    "1.50": "1.50",
    '"abc"': "abc",
    "true": "true",
    '"2026-01-01"': "2026-01-01",
    "[1, 2]": "[1, 2]",
    '{"a": "x", "b": [null, 2.0]}': '{"a": "x", "b": [null, 2.0]}',
    "null": None,
    "1180591620717411303424": "1180591620717411303424",
    '""': "",
    "{}": "{}",
    "[]": "[]",
}


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.cases(landing="4")
def test_values_of_changing_types(world: Any, batches: int) -> None:
    hook = Webhook.source("/any", SECRET, "id bigint NOT NULL", extra="add")
    hook = hook.listen("127.0.0.1:0").segments(str(world.folder / "segments"))
    values = list(VALUES)
    for batch in range(batches):
        with receiving([hook]) as (url,):
            for id in range(batch, len(values), batches):
                body = f'{{"id": {id}, "x": {values[id]}}}'
                assert post(url, body.encode(), f"m{id}")[0] == 200
        world.run(hook >> world.sink("a.t"))
    assert world.rows("a.t", "id", "x") == Counter(enumerate(VALUES.values()))


def test_a_column_of_another_type_takes_the_cast_that_the_error_names(world: Any) -> None:
    hook = Webhook.source("/any", SECRET, "id bigint NOT NULL", extra="add")
    hook = hook.listen("127.0.0.1:0").segments(str(world.folder / "segments"))
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.t (id bigint, x bigint) USING iceberg")
    with receiving([hook]) as (url,):
        assert post(url, b'{"id": 1, "x": 7}', "m1")[0] == 200
    with pytest.raises(CheckFailed, match=r'cast\(x="bigint"\)'):
        world.run(hook >> world.sink("a.t"))
    world.run(hook >> cast(x="bigint") >> world.sink("a.t"))
    assert world.rows("a.t", "id", "x") == Counter([(1, 7)])
