"""Times of Debezium are times in UTC, whatever the zone of the session is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, TimestampNTZType

from helios.sources.changes.spark.types import RULES, ConnectType

pytestmark = pytest.mark.promise("cdc")

TIMES = (
    "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2026-03-29 02:30:00.5", "2026-10-25 02:30:00",
    "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00",
)  # fmt: skip
"""Among them one that clocks of Berlin skip, and one that they show twice."""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_times_do_not_depend_on_the_zone(world: Any, zone: str) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in TIMES]
    values = [(moment - epoch).days * 86_400_000_000 + (moment - epoch).seconds * 10**6 + moment.microsecond
              for moment in moments]  # fmt: skip
    session = world.spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    rows = session.createDataFrame([(value, value % 86_400_000_000) for value in values], "at long, day long")
    timestamp = ConnectType("timestamp", LongType(), TimestampNTZType(), unit="micros")
    declared = ConnectType("declared time", StringType(), TimestampNTZType(), unit="micros")
    time = ConnectType("time", LongType(), StringType(), unit="micros")
    found = rows.select(
        RULES["timestamp"](F.col("at"), timestamp),
        RULES["declared time"](F.col("at").cast("string"), declared),
        RULES["time"](F.col("day"), time),
    ).collect()
    for row, moment, text in zip(found, moments, TIMES, strict=True):
        assert row[0] == row[1] == moment.replace(tzinfo=None), (zone, text)
        assert row[2] == text[11:], (zone, text)
