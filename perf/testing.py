"""How long tests with `helios.testing` take: the first one of a process, further ones, and stateful ones.

    python perf/testing.py --rounds 5

Each test gives one batch and compares the target, in a lake of its own, as a function with the fixture `lake` does. The
first one starts Spark.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from helios import Iceberg, Pipeline, watermark, where, window
from helios.testing import Lake

ORDERS = Iceberg.source("shop.orders").incremental()
STATELESS = ORDERS >> where("amount > 0") >> Iceberg.sink("shop.good")
STATEFUL = (
    ORDERS
    >> watermark("sent", "10 minutes")
    >> window("sent", "1 hour").agg(total="sum(amount)")
    >> Iceberg.sink("shop.hours")
)
ROWS = [{"id": n, "amount": 1.0, "sent": f"2026-01-01T{n + 9:02}:00Z"} for n in range(3)]


def seconds(pipeline: Pipeline, expected: int) -> float:
    began = time.perf_counter()
    with Lake() as lake:
        lake.table("shop.orders", "id bigint, amount double, sent timestamp")
        found = lake.test(pipeline).batch(ROWS).rows()
        assert len(found) == expected, found
    return time.perf_counter() - began


def show(name: str, times: list[float], bound: float) -> None:
    median = statistics.median(times)
    told = "met" if median < bound else "MISSED"
    print(f"{name:30} {median:6.2f} s   {max(times):6.2f} s at the most   goal {bound:4.0f} s {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    show("the first test", [seconds(STATELESS, 3)], 10)
    show("a further stateless test", [seconds(STATELESS, 3) for _ in range(rounds)], 1)
    show("a further stateful test", [seconds(STATEFUL, 1) for _ in range(rounds)], 3)


if __name__ == "__main__":
    main()
