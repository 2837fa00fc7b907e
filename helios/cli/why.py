"""The command `why`: shows where rows of a table come from."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.cli.history import fields
from helios.cli.tables import open_table, table_argument
from helios.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from helios.config import Config
    from helios.lineage.rejected import Rejected
    from helios.lineage.versions import Origin, Version
    from helios.lineage.why import Explained, Read, Why
    from helios.table.snapshots import Table
    from helios.table.view import View


@click.command()
@table_argument
@click.argument("condition", metavar="CONDITION")
@options.common
@options.json_option
def why(name: str, condition: str, profile: str | None, as_json: bool) -> None:
    """Show where the rows of TABLE that match CONDITION come from.

    For each row (at most 20) it shows the commit that wrote the row, with
    batch, pipeline and steps; the rows that the batch read, if the source
    still has them; earlier versions and rejected rows of the same key; and the
    compactions that moved the row. Expired commits are reported. No JVM is
    started.

    CONDITION compares columns with values, and combines them with AND, OR
    and NOT.

    \b
    Example:
      helios why shop.orders "id = 42"
      helios why shop.orders "customer = 'ann' AND day >= '2026-01-05'" --json
    """
    from helios.lineage.why import why as trace_rows

    config, _, table = open_table(name, profile)
    answer = trace_rows(table, condition, view_of(config))
    if as_json:
        output.print_json(_as_json(answer))
    else:
        for line in _answer_lines(answer):
            click.echo(line)


def view_of(config: Config) -> View:
    """The tables and warehouses of the configuration, in which rows are traced."""
    from helios.table.readers import warehouses
    from helios.table.view import View

    @cache
    def load(name: str) -> Table | None:
        from helios.config import resolve
        from helios.model.values import Identifier, caller

        try:
            table = resolve(Identifier.parse(name), None, {}, config, caller())
        except NotFound:
            return None
        return table.catalog.load(table.name_in_catalog)

    return View(load=load, warehouses=warehouses(config.catalogs.values()))


# as text


def _answer_lines(answer: Why) -> Iterator[str]:
    count, shown_count = answer.matches, len(answer.rows)
    if count:
        more = f"; the first {shown_count} are shown" if count > shown_count else ""
        yield f"{answer.table}: {count:,} {'row matches' if count == 1 else 'rows match'} {answer.condition}{more}."
    else:
        yield f"{answer.table}: no row matches {answer.condition}."
    if answer.key:
        yield f"Versions of a row are matched by {', '.join(answer.key)}: {answer.key_from}."
    for row in answer.rows:
        yield ""
        yield from _row_lines(answer, row)
    for version in answer.gone:
        yield ""
        yield _json_text(version.row.values)
        yield from _version_lines(answer, version)
    if answer.rejected:
        yield ""
    yield from _labelled("quarantine", [_rejected_text(row) for row in answer.rejected])
    if not count and not answer.gone and not answer.rejected and answer.since is not None:
        yield "No earlier row matches either, as far as the history goes."
    if answer.since is not None and answer.before != "nothing":
        yield f"\nBefore {_time(answer.since)}: {answer.before}."
    for note in answer.notes:
        yield f"note: {note}"


def _row_lines(answer: Why, row: Explained) -> Iterator[str]:
    version = row.version
    yield _json_text(version.row.values)
    yield from _version_lines(answer, version)
    reads = [line for read in row.reads for line in _read_lines(read)]
    yield from _labelled("read", reads)
    replayed = [line for rejected in row.replayed for line in (_rejected_text(rejected), *_source_lines(rejected))]
    yield from _labelled("replayed", replayed)
    yield from _labelled("versions", [line for earlier in row.earlier for line in _earlier_lines(answer, earlier)])
    yield from _labelled("quarantine", [_rejected_text(rejected) for rejected in row.rejected])


def _version_lines(answer: Why, version: Version) -> Iterator[str]:
    yield from _labelled("written by", _origin_lines(answer, version.origin))
    commits = [answer.commits[id] for id in version.origin.snapshots if id in answer.commits]
    if len(commits) == 1 and commits[0].plan is not None:
        yield from _labelled("steps", list(commits[0].plan.plan["steps"]) or ["none"])
    doubt = "; it may have written the same values again"
    moved = [f"{_commit_text(answer, id)}{doubt if id in version.maybe_rewritten else ''}" for id in version.moved]
    yield from _labelled("moved by", moved)
    yield from _labelled("removed by", [_commit_text(answer, version.removed)] if version.removed is not None else [])


def _origin_lines(answer: Why, origin: Origin) -> list[str]:
    if origin.unknown is not None:
        return [f"not known: {origin.unknown}"]
    title = ["one of these commits, whose equal rows were moved together:"] if len(origin.snapshots) > 1 else []
    return [*title, *(_commit_text(answer, id) for id in origin.snapshots)]


def _commit_text(answer: Why, id: int) -> str:
    commit = answer.commits.get(id)
    if commit is None:
        return f"snapshot {id}"
    other = "a compaction" if commit.operation == "replace" else "another writer"
    writer = f"{commit.pipeline}, batch {commit.batch}" if commit.pipeline is not None else other
    steps = f", steps {commit.steps}" if commit.steps else ""
    version = f", helios {commit.version}" if commit.version else ""
    expired = " (expired; found in an earlier metadata file)" if id in answer.expired else ""
    return f"snapshot {id}, {_time(commit.committed)}, {commit.operation}, by {writer}{steps}{version}{expired}"


def _read_lines(read: Read) -> Iterator[str]:
    yield f"{read.source}: {read.text}" if read.text else read.source
    again = read.again
    if again is None:
        return
    if again.count:
        more = f" (the first {len(again.rows)} of {again.count:,})" if again.count > len(again.rows) else ""
        yield f"  rows of this source with the same {', '.join(again.by)}{more}:"
        places = again.places or ("",) * len(again.rows)
        yield from (f"    {place}{_json_text(row)}" for place, row in zip(places, again.rows, strict=True))
    elif again.note is None:
        yield f"  this source has no row with the same {', '.join(again.by)}"
    if again.note is not None:
        yield f"  {again.note}"


def _earlier_lines(answer: Why, version: Version) -> Iterator[str]:
    yield _json_text(version.row.values)
    yield from (f"  written by {line}" for line in _origin_lines(answer, version.origin))
    if version.removed is not None:
        yield f"  removed by {_commit_text(answer, version.removed)}"
    else:
        yield "  still there"


def _rejected_text(row: Rejected) -> str:
    batch = f"batch {row.batch}" if row.batch is not None else "a replay"
    step = f", {row.step}" if row.step else ""
    return f"{row.table}: {_time(row.at)}, {row.pipeline}, {batch}{step}, {row.reason}: {_json_text(row.payload)}"


def _source_lines(row: Rejected) -> Iterator[str]:
    """Lines with the sources of the batch that rejected a row, and what the batch read from each."""
    from helios.table.positions import recorded_entries

    for entry in recorded_entries(row.position):
        position = f": {entry.position.text(None)}" if entry.position is not None else ""
        yield f"  of {entry.source}{position}"


def _labelled(label: str, lines: list[str]) -> Iterator[str]:
    """Lines that are indented by a column. The first line shows the label in this column."""
    for index, line in enumerate(lines):
        yield f"  {label if index == 0 else '':<11} {line}"


def _json_text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=str, ensure_ascii=False)


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


# as JSON


def _as_json(answer: Why) -> dict[str, Any]:
    @cache
    def commit_json(id: int) -> dict[str, Any]:
        commit = answer.commits.get(id)
        if commit is None:
            return {"snapshot": id}
        plan = commit.plan.plan if commit.plan is not None else {}
        return {
            **fields(commit),
            "expired": id in answer.expired,
            "plan": {"declared_at": plan.get("declared_at"), "steps": plan.get("steps")},
        }

    def version_json(version: Version) -> dict[str, Any]:
        return {
            "row": version.row.values,
            "file": version.row.place.file,
            "position": version.row.place.position,
            "row_id": version.row.id,
            "last_updated_sequence_number": version.row.updated,
            "commits": [commit_json(id) for id in version.origin.snapshots],
            "unknown": version.origin.unknown,
            "moved_by": [commit_json(id) for id in version.moved],
            "written_again_maybe": list(version.maybe_rewritten),
            "removed_by": commit_json(version.removed) if version.removed is not None else None,
        }

    return {
        "table": answer.table,
        "condition": answer.condition,
        "matches": answer.matches,
        "key": list(answer.key),
        "rows": [
            {
                **version_json(row.version),
                "read": [_read_json(read) for read in row.reads],
                "earlier": [version_json(version) for version in row.earlier],
                "replayed": [_rejected_json(rejected) for rejected in row.replayed],
                "quarantine": [_rejected_json(rejected) for rejected in row.rejected],
            }
            for row in answer.rows
        ],
        "gone": [version_json(version) for version in answer.gone],
        "quarantine": [_rejected_json(rejected) for rejected in answer.rejected],
        "since": answer.since.isoformat() if answer.since is not None else None,
        "before": answer.before,
        "notes": answer.notes,
    }


def _read_json(read: Read) -> dict[str, Any]:
    return {
        "source": read.source,
        "text": read.text,
        "entry": dict(read.entry),
        "again": asdict(read.again) if read.again is not None else None,
    }


def _rejected_json(row: Rejected) -> dict[str, Any]:
    return {
        "table": row.table,
        "pipeline": row.pipeline,
        "batch": row.batch,
        "step": row.step,
        "reason": row.reason,
        "at": row.at.isoformat(),
        "payload": dict(row.payload),
        "position": row.position,
    }
