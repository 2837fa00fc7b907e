"""`make demo`: lands a year of real flights in two halves, runs the example after each, counts with PyIceberg."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from land_flights import land

from helios import Catalog

EXAMPLES = Path(__file__).parent
DEMO = EXAMPLES.parent / ".helios-demo"


def main() -> int:
    began = time.monotonic()
    catalog = Catalog.local(path=DEMO / ".helios")
    for first, last in ((1, 6), (7, 12)):
        print(f"\n== the flights of months {first} to {last} arrive ==", flush=True)
        land(DEMO / "data", first, last)
        run = [sys.executable, "-m", "helios", "run", str(EXAMPLES / "flights.py"), "--once"]
        run += ["--set", f"data={DEMO / 'data'}"]
        status = subprocess.run(run, cwd=DEMO, check=False).returncode
        if status != 0:
            return status
    landed = sum(len(file.read_text().splitlines()) - 1 for file in (DEMO / "data" / "flights").glob("*.csv"))
    flights = catalog.load("nyc.flights").iceberg
    delays = catalog.load("nyc.delays").iceberg
    counted = flights.scan().count()
    stamped = int(flights.current_snapshot().summary["total-records"])
    print(f"\nlanded in files                {landed:>9,} flights")
    print(f"nyc.flights, counted by PyIceberg {counted:>6,} rows in {len(flights.inspect.partitions()):,} partitions")
    print(f"nyc.delays, counted by PyIceberg  {delays.scan().count():>6,} rows")
    sample = flights.scan(row_filter="late == true", limit=5, selected_fields=("time_hour", "airline", "dest", "temp"))
    for row in sample.to_arrow().to_pylist():
        print(f"  {row['time_hour']:%Y-%m-%d %H:%M} {row['airline']} to {row['dest']}, {row['temp']} F")
    right = counted == stamped == landed
    print(f"{'every flight is there once' if right else 'WRONG'}, {time.monotonic() - began:.0f} s")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
