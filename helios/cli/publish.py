"""`helios branch TABLE NAME --publish`: moves main to the head of a branch, with the records of its pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from helios.cli import output
from helios.cli.session import spark_session
from helios.errors import EngineNeeded
from helios.model.values import counted

if TYPE_CHECKING:
    from helios.catalog.names import TableName
    from helios.config import Config
    from helios.table.publish import Publication
    from helios.table.snapshots import Table


def publish(config: Config, table_name: TableName, table: Table, branch: str, *, as_json: bool) -> None:
    """Publishes a branch. Prints the new state of main, and the pipelines that can continue in main."""
    from helios.table import publish as publications

    try:
        done = publications.publish(table, branch)
    except EngineNeeded:
        with spark_session(config, table_name) as spark:
            from helios.spark.maintenance.publish import publish as run

            done = publications.plan_publication(table, branch)
            run(spark, table_name, done)
    if not as_json:
        _print(table.name, done)
        return
    output.print_json(
        {
            "table": table.name,
            "branch": branch,
            "snapshot": done.snapshot,
            "former": done.former,
            "commits": done.commits,
            "pipelines": list(done.pipelines),
            "changed": done.changes,
        }
    )


def _print(table: str, done: Publication) -> None:
    if not done.changes:
        click.echo(f"{table}: main has all commits of {done.branch} already.")
    elif not done.moves:
        click.echo(f"{table}: main has all commits of {done.branch} already, and now the records of its pipelines too.")
    else:
        before = f"was at {done.former}" if done.former is not None else "was empty"
        commits = counted(done.commits, "commit")
        click.echo(
            f"{table}: {done.branch} is published with {commits}. Main is at snapshot {done.snapshot}, and {before}."
        )
    for pipeline in done.pipelines:
        click.echo(f"{pipeline} continues in main after these commits if the script has no .branch({done.branch!r}).")
    for pipeline in done.stateful:
        output.say(
            "note",
            f"{pipeline} has state in its checkpoint. To continue in main, replace .branch({done.branch!r}) in the "
            f"script by .named(NAME, was={pipeline!r}).",
            "yellow",
        )
