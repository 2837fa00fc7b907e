"""A PostgreSQL database, mirrored into Iceberg: each of its tables, and all of them at one position of its log.

Debezium Server or Kafka Connect sends the changes into Kafka, with `topic.prefix=shop` and a topic for each table; then
`helios run examples/mirror.py`, or with `--once`. It takes `--set servers=broker-1:9092,broker-2:9092` and, for another
prefix, `--set prefix=inventory`. New tables and columns follow by themselves.
"""

from helios import Cdc, Iceberg, Kafka, param

prefix = param("prefix", "shop")

changes = (
    Kafka.source(pattern=rf"{prefix}\.public\..*")
    .servers(*param("servers", "localhost:9092").split(","))
    .incremental(poll="5s", max_rows=1_000_000)
)

mirrored = Cdc.debezium(changes) >> Iceberg.mirror("shop", atomic=True).maintain(expire="5d").exactly_once()
