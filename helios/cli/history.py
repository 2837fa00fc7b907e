"""The command `history`: who committed what into a table, what each batch read, and how its steps changed."""

from __future__ import annotations

from difflib import ndiff
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.tables import opened, table_argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from helios.table.commits import Commit


@click.command()
@table_argument
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Show the newest N commits.")
@options.common
@options.json_option
def history(name: str, last: int, profile: str | None, as_json: bool) -> None:
    """Show who committed what into TABLE, newest first.

    Of each commit of a pipeline: the batch, what it read of its sources, the
    rows that it added and removed, and how the steps of the pipeline changed
    since its commit before. No JVM is started.

    \b
    Example:
      helios history shop.orders --last 50
    """
    from helios.table.commits import commits, expired_before
    from helios.table.readers import warehouses

    config, _, table = opened(name, profile)
    every = commits(table, warehouses(config.catalogs.values()))
    found = every[:last]
    compared = ((made, _changed(made, every[index:])) for index, made in enumerate(found, start=1))
    changes = {made.snapshot: change for made, change in compared if change is not None}
    if as_json:
        output.to_json([{**fields(made), "steps_changed": changes.get(made.snapshot)} for made in found])
    elif not found:
        click.echo(f"table {table.name} has no commits.", err=True)
    else:
        output.table(
            ("snapshot", "committed", "operation", "pipeline", "batch", "added", "removed", "read"),
            [
                (
                    made.snapshot,
                    f"{made.committed:%Y-%m-%d %H:%M:%S} UTC",
                    made.operation,
                    made.pipeline or "",
                    made.batch if made.batch is not None else "",
                    counted(made, made.added),
                    counted(made, made.removed),
                    f"(moved {made.moved:,} rows)" if made.moved else "; ".join(_read(made)),
                )
                for made in found
            ],
            numbers=("added", "removed"),
        )
        for made in found:
            for line in _told(made, changes):
                click.echo(line)
        if len(found) == len(every) and (oldest := expired_before(table)) is not None:
            click.echo(f"\nBefore {oldest:%Y-%m-%d %H:%M:%S} UTC: expired.")


def _told(made: Commit, changes: Mapping[int, Sequence[str]]) -> Iterator[str]:
    if made.snapshot in changes:
        yield f"\n{made.pipeline} has other steps from snapshot {made.snapshot} on (helios {made.version}):"
        yield from (f"  {line}" for line in changes[made.snapshot])


def counted(made: Commit, rows: int) -> str:
    """A number of rows, with a sign where it is near."""
    return f"{'' if made.exact else '~'}{rows:,}"


def _read(made: Commit) -> list[str]:
    """What a commit read of each source, for people."""
    texts = zip(made.reads, made.read_texts, strict=True)
    return [f"{entry.source}: {text}" if text else entry.source for entry, text in texts]


def _changed(made: Commit, older: Sequence[Commit]) -> list[str] | None:
    """The steps that a commit's pipeline lost and got since its commit before; None where they are the same."""
    before = next((one for one in older if one.pipeline == made.pipeline), None)
    if made.pipeline is None or before is None or before.steps == made.steps:
        return None
    if made.plan is None or before.plan is None:
        return ["(the steps are not known: no checkpoint has the plan any more)"]
    lines = ndiff(before.plan.plan["steps"], made.plan.plan["steps"])
    return [line for line in lines if not line.startswith("?")]


def fields(made: Commit) -> dict[str, Any]:
    return {
        "snapshot": made.snapshot,
        "committed": made.committed.isoformat(),
        "operation": made.operation,
        "pipeline": made.pipeline,
        "batch": made.batch,
        "added": made.added,
        "removed": made.removed,
        "moved": made.moved,
        "exact": made.exact,
        "read": [{"source": s.source, "start": s.start, "end": s.end, "entry": dict(s.entry)} for s in made.spans],
        "steps": made.steps,
        "version": made.version,
        "plan": made.plan.plan if made.plan is not None else None,
    }
