"""`helios backfill` before Spark starts: what it refuses of its options, of a filter and of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.promise("backfill")

FOLLOWED = 'Iceberg.source("a.s").incremental()'
REFUSED = {
    f"{FOLLOWED} >> SINK.upsert('id')": "its mode is upsert by id",
    f"{FOLLOWED} >> SINK.upsert('id', order_by='id', history=True)": "its mode is upsert by id",
    f"{FOLLOWED} >> SINK.overwrite_partitions()": "its mode is overwrite the touched partitions",
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


def test_options(cli: Callable[..., Any], folder: Path) -> None:
    script(folder, f"{FOLLOWED} >> SINK")
    wrong = {
        (): "pass one",
        ("--where", "id > 1", "--commits", "1"): "pass one",
        ("--commits", "1", "--by", "day"): "--by, --from and --rows-stay go with --where",
        ("--where", " "): "--where is empty",
    }
    for given, message in wrong.items():
        done = cli("backfill", "pipeline.py", *given)
        assert done.exit_code == 2
        assert message in done.output
