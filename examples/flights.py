"""Flights of New York's airports in 2013: enriched as they arrive, and their delays by hour and carrier.

Land the files with `python examples/land_flights.py`, then `helios run examples/flights.py --once`.
"""

from pathlib import Path

from helios import Files, Iceberg, join, month, param, select, watermark, where, window, with_columns

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

arrivals = (
    Files.source(f"{DATA}/flights", "csv", schema=FLIGHTS).option(nullValue="NA").incremental(poll="10s", max_files=4)
    >> where("origin IN ('EWR', 'JFK', 'LGA')")
)  # fmt: skip

weather = Files.source(f"{DATA}/weather.csv", schema=WEATHER).option(nullValue="NA") >> select(
    "origin", "time_hour", "temp", "wind_speed", "precip", "visib"
)
airlines = Files.source(f"{DATA}/airlines.csv", schema="carrier string, name string") >> select(
    "carrier", "name AS airline"
)

flights = (
    arrivals
    >> join(weather, on=["origin", "time_hour"], how="left")
    >> join(airlines, on="carrier", how="left")
    >> with_columns(late="coalesce(arr_delay, 0) >= 15", cancelled="dep_time IS NULL")
    >> Iceberg.sink("nyc.flights").partition_by(month("time_hour"), "origin").maintain(expire="5d").exactly_once()
)

delays = (
    arrivals
    >> watermark("time_hour", "2 hours")
    >> window("time_hour", "1 hour")
    .group_by("carrier")
    .agg(flights="count(*)", departed="count(dep_delay)", dep_delay="avg(dep_delay)", worst="max(dep_delay)")
    >> Iceberg.sink("nyc.delays").partition_by(month("window_start")).maintain(expire="5d").exactly_once()
)
