"""Writes clicks into a topic of Kafka, which must be there: some hours of them, the same ones each time.

helios run examples/send_clicks.py [--set hours=0-6] [--set servers=broker-1:9092] [--set topic=clicks]
"""

import random
from datetime import UTC, datetime, timedelta

from helios import Kafka, Memory, param

PAGES = ("/", "/shirts", "/shoes", "/basket", "/paid")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EACH_HOUR = 1_000


def clicks(first: int, last: int) -> list[dict[str, object]]:
    """The clicks of some hours, in no order within an hour.

    Args:
        first: The first hour, from 0.
        last: The hour behind the last one.
    """
    made = []
    for hour in range(first, last):
        chosen = random.Random(hour)
        made += [
            {
                "visitor": f"v{chosen.randrange(200)}",
                "page": chosen.choice(PAGES),
                "seconds": chosen.randrange(300),
                "at": BEGIN + timedelta(hours=hour, seconds=chosen.randrange(3600)),
            }
            for _ in range(EACH_HOUR)
        ]
    return made


begin, _, end = param("hours", "0-6").partition("-")

sent = Memory.source(
    clicks(int(begin), int(end or begin)), "visitor string, page string, seconds int, at timestamp"
) >> Kafka.sink(param("topic", "clicks")).servers(*param("servers", "localhost:9092").split(",")).key("visitor")
