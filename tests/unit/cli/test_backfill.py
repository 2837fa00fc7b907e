"""`helios backfill` before Spark starts: what it refuses of its options, of a filter and of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog
from helios.table.ledger import Record

pytestmark = pytest.mark.promise("backfill")

FOLLOWED = 'Iceberg.source("a.s").incremental()'
REFUSED = {
    f"{FOLLOWED} >> SINK.upsert('id', order_by='id', delete_when='id < 0')": "the deletes that it remembers are not in",
    f"{FOLLOWED} >> SINK.upsert('id', order_by='id', history=True)": "rows that it has replaced are not put back",
    f"{FOLLOWED} >> SINK.overwrite_partitions()": "its mode is overwrite the touched partitions, and rows that it has",
    f"{FOLLOWED} >> SINK.route(by='day')": "it routes its rows into many tables",
    f"{FOLLOWED} >> SINK.audit({{'some': 'count(*) > 0'}}).publish()": "its batches wait for an audit",
    f"{FOLLOWED} >> Console.sink()": "its target is not a table",
    "Iceberg.source('a.s') >> SINK": "it reads its sources once",
    f"{FOLLOWED} >> watermark('at', '1 hour') >> dedupe('id', within='1 hour') >> SINK": "it is a stateful stream",
}


def script(folder: Path, pipeline: str) -> None:
    (folder / "pipeline.py").write_text(
        "import pyarrow as pa\n"
        "from helios import Catalog, Console, Iceberg, dedupe, watermark\n"
        "local = Catalog.local(path='.helios')\n"
        "columns = {'id': pa.int64(), 'day': pa.string(), 'at': pa.timestamp('us', tz='UTC')}\n"
        "local.create_namespace('a')\n"
        "local.create_table('a.s', pa.schema(list(columns.items())))\n"
        "SINK = Iceberg.sink('a.t').partition_by('day')\n"
        f"pipeline = {pipeline}\n"
    )


@pytest.mark.parametrize("pipeline", REFUSED)
def test_pipelines_without_a_backfill(cli: Callable[..., Any], folder: Path, pipeline: str) -> None:
    script(folder, pipeline)
    done = cli("backfill", "pipeline.py", "--where", "day = '2026-01-05'")
    assert done.exit_code == 2, done.output
    assert "cannot be backfilled" in done.output
    assert REFUSED[pipeline] in done.output


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("upsert('id', order_by='id', delete_when='id < 0')", "the deletes that it remembers are not in the table"),
        ("overwrite_partitions()", "its mode is overwrite the touched partitions, and rows that it has replaced"),
    ],
)
def test_commits_without_a_backfill(cli: Callable[..., Any], folder: Path, mode: str, why: str) -> None:
    script(folder, f"{FOLLOWED} >> SINK.{mode}")
    done = cli("backfill", "pipeline.py", "--commits", "3")
    assert done.exit_code == 2, done.output
    assert why in done.output


def test_options(cli: Callable[..., Any], folder: Path) -> None:
    script(folder, f"{FOLLOWED} >> SINK")
    wrong = {
        (): "pass one",
        ("--where", "id > 1", "--commits", "1"): "pass one",
        ("--commits", "1", "--by", "day"): "--by, --from, --rows-stay and --trust-expired go",
        ("--commits", "1", "--trust-expired"): "--by, --from, --rows-stay and --trust-expired go",
        ("--where", " "): "--where is empty",
    }
    for given, message in wrong.items():
        done = cli("backfill", "pipeline.py", *given)
        assert done.exit_code == 2
        assert message in done.output


COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("at", pa.timestamp("us")),
        ("open", pa.bool_()),
        ("small", pa.int32()),
        ("price", pa.decimal128(6, 2)),
    ]
)
WRONG_VALUES = {
    "day >= '2026-13-05'": "day: '2026-13-05' is not a date. Fix: write day >= '2026-01-05'.",
    "day IN ('2026-01-05', 'x')": "day: 'x' is not a date.",
    "day BETWEEN DATE '2026-01-01' AND '2026-02-30'": "day: '2026-02-30' is not a date.",
    "NOT Day < 5": "Day: 5 is a number and not a date. Fix: write Day < '2026-01-05'.",
    "id = 'twelve'": "id: 'twelve' is not a whole number. Fix: write id = 42.",
    "id = 99999999999999999999": "id: 99999999999999999999 is not a bigint (at most 9223372036854775807). Fix",
    "id = '99999999999999999999'": "id: '99999999999999999999' is not a bigint (at most 9223372036854775807).",
    "id > -9223372036854775809": "id: -9223372036854775809 is not a bigint (at least -9223372036854775808).",
    "small IN (1, 2147483648)": "small: 2147483648 is not an int (at most 2147483647). Fix: write small = 42.",
    "price < 12345.6": "price: 12345.6 is not a decimal(6,2) (at most 9999.99). Fix: write price < 42.",
    "name = 5 AND id = 1": "name: 5 is a number and not a text. Fix: write name = '5'.",
    "at < '2026-01-32 10:00'": "at: '2026-01-32 10:00' is not a time. Fix: write at < '2026-01-05 09:30:00'.",
    "at < '2026-01-05T06:00Z'": "at: '2026-01-05T06:00Z' is not a time.",
    "open = 'maybe'": "open: 'maybe' is not true or false. Fix: write open = true.",
    "idd = 5": "local.a.t has no column 'idd'. Did you mean 'id'?",
    "1 = 1": "names no column of local.a.t",
}


def written(folder: Path, script_has_run: bool = True) -> None:
    """A target with rows, and the record of its pipeline; no JVM is needed for what is refused."""
    (folder / "pipeline.py").write_text(f"from helios import Iceberg\npipeline = {FOLLOWED} >> Iceberg.sink('a.t')\n")
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("a")
    catalog.create_table("a.s", COLUMNS)
    catalog.create_table("a.t", COLUMNS)
    table = catalog.load("a.t").iceberg
    table.append(pa.Table.from_pylist([{"id": 1}], schema=COLUMNS))
    if script_has_run:
        with table.transaction() as change:
            change.set_properties({"helios.ledger.local.a.t": Record(checkpoint="c", batch=0).as_json()})


@pytest.mark.parametrize("where", WRONG_VALUES)
def test_a_wrong_filter_is_blamed_on_the_option_before_spark_starts(
    cli: Callable[..., Any], folder: Path, where: str
) -> None:
    written(folder)
    done = cli("backfill", "pipeline.py", "--where", where)
    assert (done.exit_code, "pipeline.py:" in done.stderr) == (2, False), done.output
    assert f"--where: {WRONG_VALUES[where]}" in done.stderr or WRONG_VALUES[where] in done.stderr
    assert "starting Spark" not in done.stderr


def test_what_else_is_refused_before_spark_starts(cli: Callable[..., Any], folder: Path) -> None:
    written(folder)
    wrong = {
        ("--where", "id = 1", "--by", "dya"): "--by dya: local.a.t has no such column. Did you mean 'day'?",
        (
            "--where",
            "id = 1",
            "--by",
            "day",
            "--from",
            "a.gone",
        ): "--from a.gone: there is neither a table local.a.gone nor such a folder",
        ("--commits", "7"): "--commits: local.a.t has no commit '7' of the pipeline",
        ("--commits", "3.."): "--commits 3.. has only one end. Fix: write both ends",
    }
    for given, message in wrong.items():
        done = cli("backfill", "pipeline.py", *given)
        assert (done.exit_code, "starting Spark" in done.stderr) == (2, False), done.output
        assert message in done.stderr, done.stderr


def test_rows_stay_is_for_rows_that_have_no_key(cli: Callable[..., Any], folder: Path) -> None:
    written(folder)
    sink = "Iceberg.sink('a.t').upsert('id')"
    (folder / "pipeline.py").write_text(f"from helios import Iceberg\npipeline = {FOLLOWED} >> {sink}\n")
    done = cli("backfill", "pipeline.py", "--where", "id = 1", "--rows-stay")
    assert done.exit_code == 2
    assert "--rows-stay does not go with the upsert" in done.output


def test_a_table_of_other_writers(cli: Callable[..., Any], folder: Path) -> None:
    written(folder, script_has_run=False)
    done = cli("backfill", "pipeline.py", "--where", "id = 1")
    assert done.exit_code == 2
    assert "local.a.t has written nothing into local.a.t: there is nothing to repair" in done.stderr
    assert "a backfill repairs only the rows of its own pipeline" in done.stderr
    rehearsed = cli("rehearse", "pipeline.py")
    assert "`helios history local.a.t` lists the commits of other writers" in rehearsed.stderr
    for asked in (("why", "a.t", "id = 1"), ("history", "a.t")):
        told = cli(*asked)
        assert (told.exit_code, "no pipeline of Helios has written this table" in told.output) == (0, True)
