"""Output on pages that no JVM is needed for: the command runs, and prints what the page shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog
from tests.suite.pages import ROOT
from tests.suite.tutorial import is_shown
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.promise("documents")

FLIGHTS = "examples/flights.py"


def block(page: str, language: str, first: str) -> str:
    """The one block of a page that begins with a text."""
    found = re.findall(rf"^```{language}\n({re.escape(first)}.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.M)
    assert len(found) == 1, f"{page}: {first}"
    return str(found[0])


@pytest.fixture
def flights(folder: Path) -> Path:
    """A folder with the example of the README, before anything has run."""
    (folder / "data" / "flights").mkdir(parents=True)
    for name in ("flights/2013-01.csv", "weather.csv", "airlines.csv"):
        (folder / "data" / name).write_text("carrier\n")
    shutil.copy(ROOT / FLIGHTS, folder)
    return folder


def test_the_readme_shows_the_plan_of_the_flights(cli: Run, flights: Path) -> None:
    printed = cli("plan", "flights.py:delays").output.replace(str(flights), "...")
    shown = block("README.md", "text", "pipeline local.nyc.delays")
    assert is_shown(shown, printed.partition("\n\n")[0]), printed


def test_the_page_of_errors_shows_an_error_as_it_is_printed(cli: Run, folder: Path) -> None:
    lines = ("from helios import Iceberg, where", "", "copy = (", "    Iceberg.source('a.b') >> where(5)", ")")
    (folder / "wrong.py").write_text("\n".join(lines))
    shown = block("docs/errors.md", "console", "$ helios plan wrong.py\n").split("\n", 1)[1]
    assert shown == cli("plan", "wrong.py").stderr


def test_the_page_of_yaml_shows_problems_as_they_are_printed(cli: Run, folder: Path) -> None:
    script = block("docs/yaml.md", "yaml", "params:")
    for right, wrong in (("on: customer, how", "othr: customer, how"), ("sink: {Iceberg.sink", "sink: {Iceberg.snk")):
        assert right in script
        script = script.replace(right, wrong)
    (folder / "pipelines.yaml").write_text(script)
    shown = block("docs/yaml.md", "console", "$ helios check pipelines.yaml\n").split("\n", 1)[1]
    assert shown == cli("check", "pipelines.yaml").stderr


EVENTS = pa.schema([("id", pa.int64()), ("country", pa.string()), ("amount", pa.float64()), ("name", pa.string())])


def test_the_pages_of_reading_and_writing_show_lines_of_a_plan(cli: Run, folder: Path) -> None:
    """What a scan pushes, and which engine runs; a backlog and its files are those of another table."""
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.events", EVENTS, partition_by=("country",))
    rows = [{"id": 1, "country": "DE", "amount": 1.0, "name": "a"}]
    table.iceberg.append(pa.Table.from_pylist(rows, schema=EVENTS))
    (folder / "reads.py").write_text(
        """from helios import Iceberg, where

events = Iceberg.source("shop.events")
german = (
    events.where("country = 'DE'").select("id", "amount").incremental(poll="60s")
    >> Iceberg.sink("shop.german")
)
plain = events.incremental() >> where("amount > 0") >> Iceberg.sink("shop.plain")
upper = events.incremental() >> where("upper(name) = 'A'") >> Iceberg.sink("shop.upper")
"""
    )
    printed = {name: cli("plan", f"reads.py:{name}").output.splitlines() for name in ("german", "plain", "upper")}
    shown = block("docs/reading.md", "text", "  read      Iceberg.source(shop.events)").splitlines()[:4]
    assert is_shown("\n".join(shown), "\n".join(printed["german"][1:5])), printed["german"]
    engines = block("docs/writing.md", "text", "  engine    native").splitlines()
    assert engines == [line for name in ("plain", "upper") for line in printed[name] if line.startswith("  engine")]
