"""Each flight with the weather as it had last been observed when it was due to leave: a point-in-time join.

Land the files with `python examples/land_flights.py`, then run the two pipelines one after the other:
`helios run examples/weather.py:observations` and `helios run examples/weather.py:departures --once`. The first keeps
every observation as a version that is valid until the next one of its airport. The second joins each flight with the
version that was valid at its time; an hour that nobody observed has the weather of the hour before, and no flight sees
what was observed later.
"""

from pathlib import Path

from helios import Files, Iceberg, drop, join, month, param, select, with_columns

DATA = Path(param("data", str(Path(__file__).parent / "data")))

FLIGHTS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
WEATHER = """
    origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir double,
    wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp
"""

observations = (
    Files.source(f"{DATA}/weather.csv", schema=WEATHER).option(nullValue="NA")
    >> select("origin", "temp", "wind_speed", "visib", "time_hour AS observed")
    >> Iceberg.sink("nyc.weather").upsert("origin", order_by="observed", history=True)
)

departures = (
    Files.source(f"{DATA}/flights", "csv", schema=FLIGHTS).option(nullValue="NA").incremental(poll="10s", max_files=4)
    >> with_columns(due="timestampadd(MINUTE, minute, time_hour)")
    >> join(Iceberg.source("nyc.weather") >> drop("observed"), on="origin", how="left", as_of="due")
    >> drop("valid_to")
    >> Iceberg.sink("nyc.departures").partition_by(month("due")).maintain(expire="5d").exactly_once()
)
