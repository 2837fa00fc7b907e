"""What the body of a delivery must be, and how it is stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.plan.typing.schema import from_ddl
from helios.sources.webhook.bodies import line_of, verified
from helios.sources.webhook.signatures import Refused

pytestmark = pytest.mark.promise("webhook")

AT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = from_ddl(
    "id bigint NOT NULL, name string, amount decimal(6,2), day date, at timestamp, ok boolean, tags array<int>, "
    "more struct<a:int>, raw binary, ratio double, near float",
    None,
)


@pytest.mark.parametrize(
    "body",
    [
        {"id": 1},
        {"id": -(2**63), "name": None, "amount": 1234.56, "ratio": 1},
        {"id": 1, "amount": -1, "day": "2026-01-01", "at": "2026-01-01T10:00:00Z", "ok": False},
        {"ID": 1, "AMOUNT": 1e2, "at": "2026-01-01T10:00:00.123456000+0130", "more": {"A": 1}},
        {"id": 1, "tags": [1, None], "more": {"a": 2}, "raw": "aGk=", "name": {"any": "text"}},
    ],
)
def test_what_fits(body: dict[str, Any]) -> None:
    verified(json.dumps(body).encode(), SCHEMA)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"id": 1', "not JSON"),
        (b'{"id": NaN}', "NaN is not a JSON number"),
        (b'{"id": 1, "id": 2}', "the key 'id' occurs twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "must be a JSON object"),
        (b"{}", "id is missing, or null"),
        (b'{"id": null}', "id is missing, or null"),
        (b'{"id": "1"}', 'id is not of type bigint: "1"'),
        (b'{"id": true}', "id is not of type bigint: true"),
        (b'{"id": 1.5}', "id is not of type bigint"),
        (b'{"id": 9223372036854775808}', "id is not of type bigint"),
        (b'{"id": 1, "amount": 0.001}', "amount is not of type decimal"),
        (b'{"id": 1, "amount": 12345}', "amount is not of type decimal"),
        (b'{"id": 1, "day": "01.01.2026"}', "day is not of type date"),
        (b'{"id": 1, "at": 5}', "at is not of type timestamp"),
        (b'{"id": 1, "tags": [1, "2"]}', "tags is not of type array<int>"),
        (b'{"id": 1, "more": {"b": 1}}', "more is not of type struct<a:int>"),
        (b'{"id": 1, "raw": "-"}', "raw is not of type binary"),
        (b'{"id": 1, "nme": "x"}', "nme is not declared. Did you mean 'name'?"),
        (b'{"id": 1, "_webhook_id": "x"}', "is reserved for Helios's own column"),
        (b'{"id": 1, "_WEBHOOK_ID": "x"}', "is reserved for Helios's own column"),
        (b'{"id": 1, "ID": 2}', "a column occurs twice"),
        (b'{"id": 1, "more": {"a": 1, "A": 2}}', "more is not of type struct<a:int>"),
        (b'{"id": 1, "day": "20260101"}', "day is not of type date"),
        (
            b'{"id": 1, "at": "2026-01-01T10:00:00.1234567Z"}',
            '"2026-01-01T10:00:00.1234567Z" (the fraction of a second has more than six digits)',
        ),
        (b'{"id": 1, "at": "2026-01-01T10:00Z"}', "at is not of type timestamp"),
        (b'{"id": 1, "at": "0001-01-01T00:00:00+18:00"}', "at is not of type timestamp"),
        (b'{"id": 1, "name": "\\ud800"}', "half of a surrogate pair"),
        (b'{"id": 1, "\\ud800": 1}', "half of a surrogate pair"),
        (b'{"id": 1, "ratio": 1e400}', "ratio is not of type double: 1e400"),
        (b'{"id": 1, "near": 1e39}', "near is not of type float: 1e39"),
        (b'{"id": 1, "ratio": 1%s}' % (b"0" * 400), "ratio is not of type double"),
        (b'{"id": 1, "amount": 1e99999999999999999999}', "amount is not of type decimal"),
        (b'{"id": 1, "amount": 1.0000000000000000000000000000001}', "amount is not of type decimal"),
        (b'{"id": 1, "name": %s}' % (b"1" * 1001), "a number has more than 1,000 characters"),
        (b'{"id": 1, "name": %s}' % (b"[" * 500 + b"]" * 500), "nested too deeply"),
        (b'{"id": 1, "raw": "aGl="}', "raw is not of type binary"),
    ],
)
def test_what_does_not(body: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        verified(body, SCHEMA)
    assert refused.value.status == 422
    assert reason in refused.value.reason


def test_more_fields_where_they_are_allowed() -> None:
    verified(b'{"id": 1, "new": 2}', SCHEMA, "add")
    verified(b'{"id": 1, "new": 2, "more": {"b": 1}}', SCHEMA, "ignore")
    with pytest.raises(Refused):  # Spark would leave it out
        verified(b'{"id": 1, "more": {"b": 1}}', SCHEMA, "add")


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b'{"id": 1, "at": "2026-01-01T10:00:00.123456789Z"}', b'{"id": 1, "at": "2026-01-01T10:00:00.123456Z"}'),
        (b'{"id": 1,  "at" : "2026-01-01 10:00:00.0000009" }', b'{"id": 1,  "at" : "2026-01-01 10:00:00.000000" }'),
        (b'{"id": 1, "AT": "2026-01-01T10:00:00.1234567+01:00", "name": [1.10]}',
         b'{"id": 1, "AT": "2026-01-01T10:00:00.123456+01:00", "name": [1.10]}'),
        (b'{"name": "2026-01-01T10:00:00.1234567Z", "id": 1}', b'{"name": "2026-01-01T10:00:00.1234567Z", "id": 1}'),
    ],
)  # fmt: skip
def test_fractions_are_cut(body: bytes, stored: bytes) -> None:
    assert verified(body, SCHEMA, fraction="truncate") == stored


@pytest.mark.parametrize("body", [b"[]", b"{}", b"5", b'{"id": 1, "at": 5}', b'[["2026"]]', b'{"at": [1]}', b""])
def test_what_cannot_be_cut_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        verified(body, SCHEMA, fraction="truncate")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), st.sampled_from([None, 2]))
def test_a_stored_delivery_is_what_came_on_one_line(body: dict[str, Any], indent: int | None) -> None:
    sent = json.dumps(body, indent=indent).replace("\n", "\r\n").encode()
    line = line_of("m", AT, sent, columns=True)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == {"_webhook_id": "m", "_webhook_received_at": "2026-01-01T00:00:00.000000Z", **body}
    assert json.loads(line_of("m", AT, sent, columns=False))["body"] == body
