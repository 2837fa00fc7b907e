"""The command `history`: shows a table's commits, what each batch read, and how the steps changed."""

from __future__ import annotations

from difflib import ndiff
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.tables import open_table, table_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from helios.table.commits import Commit


@click.command()
@table_argument
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Show the newest N commits.")
@options.common
@options.json_option
def history(name: str, last: int, profile: str | None, as_json: bool) -> None:
    """Show who committed what into TABLE, newest first.

    For each commit of a pipeline it shows the batch, what the batch read from
    each source, the rows that were added and removed, and how the steps have
    changed since the pipeline's previous commit. No JVM is started.

    \b
    Example:
      helios history shop.orders --last 50
    """
    from helios.table.commits import NOT_WRITTEN, commits, never_written, oldest_retained_time
    from helios.table.readers import warehouses

    config, _, table = open_table(name, profile)
    newest_first = commits(table, warehouses(config.catalogs.values()))
    shown_commits = newest_first[:last]
    changes: dict[int, list[str]] = {}
    for number, commit in enumerate(shown_commits, start=1):
        changed = _changed_steps(commit, newest_first[number:])
        if changed is not None:
            changes[commit.snapshot] = changed
    if as_json:
        output.print_json(
            [{**fields(commit), "steps_changed": changes.get(commit.snapshot)} for commit in shown_commits]
        )
    elif not shown_commits:
        click.echo(f"table {table.name} has no commits.", err=True)
    else:
        columns = ("snapshot", "committed", "operation", "pipeline", "batch", "added", "removed", "read")
        output.print_table(columns, [_row(commit) for commit in shown_commits], numbers=("added", "removed"))
        for commit in shown_commits:
            if commit.snapshot in changes:
                version = f"helios {commit.version}"
                click.echo(f"\n{commit.pipeline} has other steps from snapshot {commit.snapshot} on ({version}):")
                for line in changes[commit.snapshot]:
                    click.echo(f"  {line}")
        if never_written(newest_first, table):
            output.say("note", NOT_WRITTEN, "yellow")
        oldest = oldest_retained_time(table)
        if len(shown_commits) == len(newest_first) and oldest is not None:
            click.echo(f"\nBefore {oldest:%Y-%m-%d %H:%M:%S} UTC: expired.")


def _row(commit: Commit) -> tuple[object, ...]:
    return (
        commit.snapshot,
        f"{commit.committed:%Y-%m-%d %H:%M:%S} UTC",
        commit.operation,
        commit.pipeline or "",
        commit.batch if commit.batch is not None else "",
        _row_count(commit, commit.added),
        _row_count(commit, commit.removed),
        f"(moved {commit.moved:,} rows)" if commit.moved else "; ".join(_read_texts(commit)),
    )


def _row_count(commit: Commit, rows: int) -> str:
    """A number of rows of a commit; "~" marks an estimate."""
    return f"{'' if commit.exact else '~'}{rows:,}"


def _read_texts(commit: Commit) -> list[str]:
    """What a commit read from each source, as text."""
    texts = zip(commit.reads, commit.read_texts, strict=True)
    return [f"{entry.source}: {text}" if text else entry.source for entry, text in texts]


def _changed_steps(commit: Commit, older: Sequence[Commit]) -> list[str] | None:
    """A diff of the steps to those of the pipeline's previous commit; None without such a commit or a change."""
    previous = next((other for other in older if other.pipeline == commit.pipeline), None)
    if commit.pipeline is None or previous is None or previous.steps == commit.steps:
        return None
    if commit.plan is None or previous.plan is None:
        return ["(the steps are unknown: no checkpoint still has the plan)"]
    lines = ndiff(previous.plan.plan["steps"], commit.plan.plan["steps"])
    return [line for line in lines if not line.startswith("?")]


def fields(commit: Commit) -> dict[str, Any]:
    """The fields of a commit in the JSON output."""
    return {
        "snapshot": commit.snapshot,
        "committed": commit.committed.isoformat(),
        "operation": commit.operation,
        "pipeline": commit.pipeline,
        "batch": commit.batch,
        "added": commit.added,
        "removed": commit.removed,
        "moved": commit.moved,
        "exact": commit.exact,
        "read": [
            {"source": span.source, "start": span.start, "end": span.end, "entry": dict(span.entry)}
            for span in commit.spans
        ],
        "steps": commit.steps,
        "version": commit.version,
        "plan": commit.plan.plan if commit.plan is not None else None,
    }
