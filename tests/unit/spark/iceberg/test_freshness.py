"""Which replica shows an older state of a table than the run has seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from helios import Catalog
from helios.spark.iceberg import freshness
from helios.spark.iceberg.freshness import MetadataVersion


class Metadata:
    """As Java's `TableMetadata` answers."""

    def __init__(self, *, uuid: str = "u", location: str | None, sequence: int, updated: int, log: Any = ()) -> None:
        self._answers = {
            "uuid": uuid,
            "metadataFileLocation": location,
            "lastSequenceNumber": sequence,
            "lastUpdatedMillis": updated,
            "previousFiles": [SimpleNamespace(file=lambda f=f: f, timestampMillis=lambda t=t: t) for f, t in log],
        }

    def __getattr__(self, name: str) -> Any:
        return lambda: self._answers[name]


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
    "a table recreated later": (Metadata(uuid="v", location="n1", sequence=0, updated=60), False),
    "the table before it was recreated": (Metadata(uuid="t", location="l9", sequence=9, updated=20), True),
}


@pytest.mark.parametrize(("shown", "older"), SHOWN.values(), ids=SHOWN)
def test_what_a_replica_shows_is_older_or_not(shown: Any, older: bool) -> None:
    assert SEEN.newer_than(shown) is older


def test_catalogs_that_share_a_replica_are_tracked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "FRESHNESS", {})
    a, b, c = (f"https://{name}.example.com" for name in "abc")
    first, second = Catalog.rest("prod", uri=[a, b]), Catalog.rest("prod", uri=[b, c])
    for one in (first, second):
        freshness.track_replicas(one)
    assert len({id(one) for one in freshness.FRESHNESS.values()}) == 1
    assert len(freshness.FRESHNESS) == 5
