"""Latency of catalog operations without a JVM, on Iceberg's own REST server: cold, warm, and 100 at once.

    python perf/catalog.py --rounds 50

Cold is the first call of a catalog value, which connects and asks the server for its configuration; PyIceberg is
imported before. Warm calls are answered from what is remembered for `CACHE_SECONDS`, or ask the server by a kept
connection.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from helios import Catalog  # noqa: E402
from helios.catalog.operations import CACHE_SECONDS, forget  # noqa: E402
from tests.services.rest import Rest  # noqa: E402

TABLES = 100
BOUNDS = {"warm": 5.0, "cold": 100.0}


def timed(call: Callable[[str], object], table: str = "perf.t0") -> float:
    began = time.perf_counter()
    found = call(table)
    assert found
    return (time.perf_counter() - began) * 1000


def show(name: str, times: Sequence[float], bound: float | None = None) -> bool:
    median = statistics.median(times)
    met = bound is None or median < bound
    told = "" if bound is None else f"{bound:7.0f} ms {'met' if met else 'MISSED'}"
    print(f"{name:52} {median:8.2f} ms {max(times):8.2f} ms {told}", flush=True)
    return met


def fill(uri: str) -> None:
    catalog = Catalog.rest("fill", uri=uri)
    catalog.create_namespace("perf")
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(20)])
    for number in range(TABLES):
        catalog.create_table(f"perf.t{number}", schema)


def at_once(catalog: Catalog, names: Sequence[str]) -> tuple[list[float], list[str], float]:
    """Loads tables in as many threads, which start together; the time of each, the failures, and the time of all."""
    ready = threading.Barrier(len(names))
    failures: list[str] = []

    def load(name: str) -> float:
        ready.wait()
        try:
            return timed(catalog.load, name)
        except Exception as error:  # whatever it is, it is counted
            failures.append(f"{type(error).__name__}: {error}")
            return 0.0

    with ThreadPoolExecutor(len(names)) as pool:
        began = time.perf_counter()
        times = list(pool.map(load, names))
        return times, failures, time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    with Rest() as server:
        fill(server.uri)
        print(f"{'':52} {'median':>11} {'worst':>11} {'bound':>10}")
        met = []
        for what in ("exists", "load"):
            fresh = [Catalog.rest(f"cold_{what}_{n}", uri=server.uri) for n in range(rounds)]
            met.append(show(f"{what}, cold", [timed(getattr(one, what)) for one in fresh], BOUNDS["cold"]))
        catalog = Catalog.rest("warm", uri=server.uri)
        for what in ("exists", "load"):
            kept, asked = [], []
            for _ in range(rounds):
                forget(catalog, ("perf", "t0"))
                asked.append(timed(getattr(catalog, what)))
                kept.append(timed(getattr(catalog, what)))
            met.append(show(f"{what}, warm, remembered (up to {CACHE_SECONDS:.0f} s)", kept, BOUNDS["warm"]))
            met.append(show(f"{what}, warm, asks the server", asked, BOUNDS["warm"]))
        for what, names in (
            ("100 tables", [f"perf.t{n}" for n in range(TABLES)]),
            ("one table", ["perf.t1"] * TABLES),
        ):
            for kind, chosen in (("cold", Catalog.rest(f"many_{len(set(names))}", uri=server.uri)), ("warm", catalog)):
                times, failures, seconds = at_once(chosen, names)
                show(f"load of {what} in {TABLES} threads at once, {kind}", times)
                print(f"    {len(failures)} errors, all of them in {seconds:.2f} s")
                met.append(not failures)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
