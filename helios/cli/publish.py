"""`helios branch TABLE NAME --publish`: moves main to the head of a branch.

Main also gets the progress of the branch's pipelines, so that they can continue in main.
"""

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
        publication = publications.publish(table, branch)
    except EngineNeeded:
        with spark_session(config, table_name) as spark:
            from helios.spark.maintenance.publish import publish as run_publication

            publication = publications.plan_publication(table, branch)
            run_publication(spark, table_name, publication)
    if not as_json:
        _print(table.name, publication)
        return
    output.print_json(
        {
            "table": table.name,
            "branch": branch,
            "snapshot": publication.snapshot,
            "former": publication.former,
            "commits": publication.commits,
            "pipelines": list(publication.pipelines),
            "changed": publication.has_changes,
        }
    )


def _print(table: str, publication: Publication) -> None:
    if not publication.has_changes:
        click.echo(f"{table}: main has all commits of {publication.branch} already.")
    elif not publication.moves_main:
        click.echo(
            f"{table}: main has all commits of {publication.branch} already. Now main also has the progress of the "
            "branch's pipelines."
        )
    else:
        before = f"was at {publication.former}" if publication.former is not None else "was empty"
        commits = counted(publication.commits, "commit")
        click.echo(
            f"{table}: {publication.branch} is published with {commits}. "
            f"Main is at snapshot {publication.snapshot}, and {before}."
        )
    for pipeline in publication.pipelines:
        click.echo(
            f"{pipeline} can continue in main after these commits: run it without .branch({publication.branch!r})."
        )
    for pipeline in publication.stateful:
        output.say(
            "note",
            f"{pipeline} has state in its checkpoint. To continue {pipeline} in main, replace "
            f".branch({publication.branch!r}) in the script by .named(NAME, was={pipeline!r}).",
            "yellow",
        )
