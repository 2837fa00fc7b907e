"""Clicks of a web shop, from Kafka: each of them in one table, and their number by page and hour in another.

Make a topic `clicks` and write some into it, `helios run examples/send_clicks.py`; then `helios run examples/clicks.py
--once`. Both take `--set servers=broker-1:9092,broker-2:9092`.
"""

from helios import Iceberg, Kafka, day, param, watermark, window

clicks = (
    Kafka.source(param("topic", "clicks"))
    .servers(*param("servers", "localhost:9092").split(","))
    .value("json", schema="visitor string NOT NULL, page string, seconds int, at timestamp NOT NULL")
    .incremental(poll="5s", max_rows=1_000_000)
)

landed = (
    clicks.metadata("partition", "offset").on_bad_row("quarantine")
    >> Iceberg.sink("web.clicks")
    .partition_by(day("at"))
    .quarantine("web.bad_clicks")
    .maintain(expire="5d")
    .exactly_once()
)

# Spark's stream cannot set records aside: those that `landed` quarantines are counted here.
hours = (
    clicks.on_bad_row("drop")
    >> watermark("at", "1 hour")
    >> window("at", "1 hour").group_by("page").agg(clicks="count(*)", seconds="sum(seconds)", longest="max(seconds)")
    >> Iceberg.sink("web.page_hours").partition_by(day("window_start")).maintain(expire="5d")
)
