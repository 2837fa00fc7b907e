"""How long a run waits, and which replica shows less than was seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from helios import Catalog
from helios.spark.iceberg import freshness
from helios.spark.iceberg.freshness import MetadataVersion
from helios.spark.run import backoff
from helios.spark.run.backoff import Outage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(backoff.time, "monotonic", lambda: now[0])
    return now


def pauses(one: Outage, clock: list[float], ways: int = 1) -> list[float]:
    found = []
    while (pause := one.pause(ways)) is not None:
        found.append(pause)
        clock[0] += pause
    return found


def test_pauses_double_up_to_a_bound_and_the_last_try_is_at_the_end(clock: list[float]) -> None:
    found = pauses(Outage(60.0), clock)
    assert found == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, 4.5]
    assert sum(found) == 60.0


def test_other_replicas_are_asked_at_once(clock: list[float]) -> None:
    assert pauses(Outage(4.0), clock, ways=3) == [0.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.5]


def test_each_outage_has_all_of_the_time(clock: list[float]) -> None:
    one = Outage(3.0)
    assert one.over() is None
    assert one.pause() == 0.5
    clock[0] += 2.0
    assert one.over() == 2.0
    assert not one.lasts
    clock[0] += 1000.0
    assert one.pause() == 0.5


def test_no_outage_is_waited_for_when_none_was_asked_for(clock: list[float]) -> None:
    assert Outage(0.0).pause() is None


class Metadata:
    """As Java's `TableMetadata` answers."""

    def __init__(self, *, uuid: str = "u", location: str | None, sequence: int, updated: int, log: Any = ()) -> None:
        self._told = {
            "uuid": uuid,
            "metadataFileLocation": location,
            "lastSequenceNumber": sequence,
            "lastUpdatedMillis": updated,
            "previousFiles": [SimpleNamespace(file=lambda f=f: f, timestampMillis=lambda t=t: t) for f, t in log],
        }

    def __getattr__(self, name: str) -> Any:
        return lambda: self._told[name]


SEEN = MetadataVersion(uuid="u", location="m5", sequence=5, updated=50)

SHOWN: dict[str, tuple[Metadata, bool]] = {
    "the same": (Metadata(location="m5", sequence=5, updated=50, log=[("m4", 40)]), False),
    "a newer one": (Metadata(location="m6", sequence=6, updated=60, log=[("m4", 40), ("m5", 50)]), False),
    "newer properties": (Metadata(location="m6", sequence=5, updated=50, log=[("m4", 40), ("m5", 50)]), False),
    "an older one": (Metadata(location="m4", sequence=4, updated=40, log=[("m3", 30)]), True),
    "older properties": (Metadata(location="m4", sequence=5, updated=49, log=[("m3", 30)]), True),
    "another history": (Metadata(location="x6", sequence=6, updated=60, log=[("m4", 40), ("x5", 50)]), True),
    "a much newer one, whose log has an end": (Metadata(location="m900", sequence=900, updated=900), False),
    "a log that ends later": (Metadata(location="m900", sequence=900, updated=900, log=[("m899", 899)]), False),
    "no location told": (Metadata(location=None, sequence=4, updated=40), True),
    "a table made anew later": (Metadata(uuid="v", location="n1", sequence=0, updated=60), False),
    "the table before it was made anew": (Metadata(uuid="t", location="l9", sequence=9, updated=20), True),
}


@pytest.mark.parametrize(("shown", "older"), SHOWN.values(), ids=SHOWN)
def test_what_a_replica_shows_is_older_or_not(shown: Any, older: bool) -> None:
    assert SEEN.older(shown) is older


def test_catalogs_that_share_a_replica_are_watched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "FRESHNESS", {})
    a, b, c = (f"https://{name}.example.com" for name in "abc")
    first, second = Catalog.rest("prod", uri=[a, b]), Catalog.rest("prod", uri=[b, c])
    for one in (first, second):
        freshness.track_replicas(one)
    assert len({id(watch) for watch in freshness.FRESHNESS.values()}) == 1
    assert len(freshness.FRESHNESS) == 5
