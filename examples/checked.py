"""Flights that are checked: rows by expectations, whole batches by an audit before anybody sees them.

Land the files with `python examples/land_flights.py`, then `helios run examples/checked.py --once`. Flights that do not
meet the expectation are set aside (`helios quarantine nyc.doubtful`); mended, they are replayed with
`helios quarantine replay examples/checked.py`. A batch that does not pass its audit stops the run, and main does not
show it: `helios quarantine nyc.checked --batch N` sets it aside.
"""

from pathlib import Path

from helios import Files, Iceberg, expect, month, param, with_columns

DATA = Path(param("data", str(Path(__file__).parent / "data")))
PLANE = param("plane", "tailnum IS NOT NULL")

FLIGHTS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""

checked = (
    Files.source(f"{DATA}/flights", "csv", schema=FLIGHTS).option(nullValue="NA").incremental(poll="10s", max_files=1)
    >> expect({"plane": PLANE, "landed": "dep_time IS NULL OR arr_time IS NOT NULL"}, on_fail="quarantine")
    >> with_columns(cancelled="dep_time IS NULL")
    >> Iceberg.sink("nyc.checked")
    .maintain(expire="5d")
    .partition_by(month("time_hour"))
    .quarantine("nyc.doubtful")
    .audit(
        {
            "once": "count(*) = count(DISTINCT time_hour, carrier, flight)",
            "plausible": "coalesce(max(dep_delay), 0) < 24 * 60",
        }
    )
    .publish()
)
