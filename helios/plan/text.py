"""Renders a plan as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helios.model.maintenance import Maintenance
from helios.model.retry import Retry
from helios.model.sink import IcebergSink
from helios.model.values import counted, show_seconds
from helios.plan.formats import show_format
from helios.plan.nodes import Plan, ReadPlan, Trigger, WritePlan
from helios.plan.properties import new_table_properties
from helios.plan.scans import Backlog, Scan
from helios.plan.spill import Spill
from helios.table.growth import DAY, REMEDY

KNOWN_AT_RUN = "known at run"
FORMAT, FILES, ROWS, MORE = "_format", "_files", "_rows of ", "_more"
"""Labels that are not printed. They mark lines below the first line of a target or a source, so that
`helios.plan.together` finds them; `ROWS` is followed by the kind of the source."""


def render(plan: Plan) -> str:
    """The plan as `helios plan` prints it."""
    return text_of(first_line(plan), lines(plan))


def first_line(plan: Plan) -> str:
    return f"pipeline {plan.pipeline}  ({plan.origin})"


def text_of(first: str, lines: Iterable[tuple[str, str]]) -> str:
    """The first line of a plan, and below it a line for each label and text."""
    shown = (("" if label.startswith("_") else label, text) for label, text in lines)
    return "\n".join([first, *(f"  {label:<10}{text}" for label, text in shown)])


MIRROR_CHANGES = {
    "fail": "",
    "keep": ", continuing after a change of columns that the database's log does not fully describe",
    "snapshot": ", awaiting a snapshot after a change of columns that the database's log does not fully describe",
}
"""For each `.on_schema_change` of a mirror, the end of the mirror's line."""


def lines(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields every line as a label and a text. If the label above applies, the label is empty or begins with `_`."""
    for index, read in enumerate(plan.reads):
        yield "read", read.source.label()
        if read.table is not None:
            yield "", f"{read.table.text}, {_snapshots(read)}"
        if read.joined is not None:
            yield "", f"joined {read.joined}"
        if pushed := plan.pushed_predicates(index):
            yield "", "pushed: " + ", ".join(pushed)
        for number, text in enumerate(read.source.details(read.format_version)):
            yield "" if number else ROWS + read.kind, text
        yield from ((MORE, text) for text in _next_scan(read))
    yield "path", f"{plan.path.value}: {plan.why}"
    if plan.engine.setting != "off":
        yield "engine", str(plan.engine)
    for step in plan.stream.steps:
        yield "step", step.text()
    yield from _write(plan.write)
    if plan.spill is not None:
        yield "spill", _spilled(plan.spill)
    known = plan.schema.columns if plan.schema is not None else None
    unknown = "each table's own" if plan.write.sink.mirrors else KNOWN_AT_RUN
    yield "schema", ", ".join(f"{c.name} {c.type}" for c in known) if known is not None else unknown
    if plan.trigger is not None:
        yield "trigger", trigger_text(plan.trigger)
        yield from _history_note(plan)
    temporary = (
        "the catalog is in memory" if plan.write.sink.iceberg is not None else "each run starts from the beginning"
    )
    yield "progress", plan.checkpoint or f"a temporary folder ({temporary})"
    yield "jars", ", ".join(plan.components)


def _snapshots(read: ReadPlan) -> str:
    """The snapshot, or the range of snapshots, that is read from a table, as text."""
    if read.uuid is None:
        return "made by this script, or not looked up"
    branch = f"branch {read.branch}, " if read.branch else ""
    if read.span is not None:
        return f"{branch}snapshots after {read.span[0]}, up to {read.span[1]}"
    followed = read.source.streaming
    if read.state is not None:
        later = f", then every later commit; now at {read.snapshot}" if followed else ""
        return f"{branch}state of snapshot {read.state}{later}"
    return branch + (f"snapshot {read.snapshot}" if read.snapshot is not None else "empty")


def _next_scan(read: ReadPlan) -> Iterator[str]:
    """Yields the backlog and the scan of the next run, if they are known."""
    if read.backlog is not None:
        yield f"backlog: {', then '.join(_backlog(read.backlog))}"
    if read.scan is not None:
        yield f"scan: {_scan(read.scan)}"


def _backlog(backlog: Backlog) -> Iterator[str]:
    """Yields the state and the commits that the next run reads, as text."""
    if backlog.lost:
        yield f"unknown, since snapshot {backlog.since} has expired or was rolled back"
        return
    already_read = ""
    if backlog.begun:
        have = "has" if backlog.begun == 1 else "have"
        already_read = f", of which {counted(backlog.begun, 'file')} {have} been read"
    if backlog.state is not None:
        amount = f"{counted(backlog.state_rows, 'row')} in {counted(backlog.state_files, 'file')}"
        yield f"the state of snapshot {backlog.state}, {amount}{already_read}"
    elif backlog.since is None and not backlog.snapshots:
        yield "nothing yet"
    if backlog.snapshots:
        amount = f"{counted(backlog.rows, 'row')} in {counted(backlog.files, 'file')}"
        since = f" since snapshot {backlog.since}" if backlog.since is not None else ""
        suffix = already_read if backlog.state is None else ""
        yield f"{counted(backlog.snapshots, 'snapshot')}{since}, {amount}{suffix}"
    elif backlog.state is None and backlog.since is not None:
        yield f"nothing since snapshot {backlog.since}"


def _scan(scan: Scan) -> str:
    if scan.files is None or scan.bytes is None:
        return f"unknown which of {counted(scan.of_files, 'file')} match"
    parts = [f"{scan.files:,} of {counted(scan.of_files, 'file')}"]
    if scan.of_partitions:
        parts.append(f"{scan.partitions:,} of {counted(scan.of_partitions, 'partition')}")
    return ", ".join([*parts, show_bytes(scan.bytes)])


def _write(write: WritePlan) -> Iterator[tuple[str, str]]:
    """Yields the lines of the target."""
    sink = write.sink.iceberg
    if sink is None:
        yield "write", f"{write.table.text}, {write.sink.label()}, at least once: {write.sink.repeats_because}"
        yield from (("", line) for line in write.sink.details())
        return
    branch = f", branch {sink.branch_name}" if sink.branch_name else ""
    yield "write", f"{write.table.text}{branch}, {write.mode.text()}, exactly once; {_existence(write)}"
    yield FORMAT, f"{_format(write)}, {_partitioning(write)}"
    if write.unreadable_by:
        advice = "; .format_version(2) keeps to v2" if write.makes_tables else ""
        yield "", f"not read by {', '.join(write.unreadable_by)}{advice}"
    yield FILES, ", ".join(_files(write))
    if sink.properties:
        yield MORE, "properties " + ", ".join(f"{k}={v}" for k, v in sink.properties)
    if sink.summary_entries:
        yield MORE, "snapshot properties " + ", ".join(f"{k}={v}" for k, v in sink.summary_entries)
    for change in write.changes:
        yield "change", change
    if write.left_out:
        yield (
            "left out",
            f"{', '.join(write.left_out)}: only the order and the deletes use them, and the table does not have them",
        )
    if sink.routing is not None:
        yield "route", f"by {sink.routing}, to {write.table.text}_<value>"
    if (mirror := sink.mirror) is not None:
        named = mirror.names.replace("{", "<").replace("}", ">")
        together = ", all of a batch in one commit" if mirror.atomic else ""
        kept = MIRROR_CHANGES[mirror.schema_change]
        yield "mirror", f"each table of the database, to {write.table.text}.{named}{together}{kept}"
    if write.quarantine is not None:
        yield "failed", f"rows go to {write.quarantine.text}"
    for name, condition in sink.audits:
        yield "audit", f"{name}: {condition}, before main shows the batch"
    if sink.maintenance is not None:
        yield "maintain", maintenance_text(sink.maintenance)
        yield from _compaction_note(write, sink.maintenance)
    if sink.retry_policy != Retry():
        yield "retry", retry_text(sink.retry_policy)
    yield from (("note", note) for note in write.notes)


def _spilled(spill: Spill) -> str:
    where = "each executor's spark.local.dir" if spill.folder is None else spill.folder
    free = f" ({show_bytes(spill.free)} free)" if spill.free is not None else ""
    size = f" ({show_bytes(spill.target)} of files)" if spill.target is not None else ""
    return f"data beyond memory goes to {where}{free}: {', '.join(spill.what)}{size}"


def _history_note(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields a note if no snapshot of a streaming pipeline's table expires: each commit lists all snapshots again."""
    sink = plan.write.sink.iceberg
    if plan.trigger is None or sink is None or (sink.maintenance is not None and sink.maintenance.expire is not None):
        return
    advice = plan.write.growth.advice() if plan.write.growth is not None else None
    commits = max(1, round(DAY / plan.trigger.every))
    yield "history", advice or f"up to {commits:,} commits a day, and no snapshot expires: {REMEDY} bounds that"


def _existence(write: WritePlan) -> str:
    sink = write.iceberg
    if sink.many_tables:
        named = "change" if sink.mirrors else "row"
        return f"each table is created with its first {named}" if sink.creates else "only existing tables"
    missing = "will be created" if sink.creates else "is missing"
    return {True: "exists", False: missing, None: "not looked up"}[write.exists]


def _format(write: WritePlan) -> str:
    shown = show_format(write.format_version)
    if write.sink.many_tables:
        return f"new tables of {shown}" if write.iceberg.creates else "as each table has it"
    declared = write.iceberg.format
    if write.exists and declared not in (None, write.format_version):
        return f"{shown} (.format_version({declared}) is for new tables)"
    return shown if write.exists is not None else f"{shown} if it is created"


def _partitioning(write: WritePlan) -> str:
    fields = write.partitioning
    if not fields and write.exists is None and not write.sink.many_tables:
        return "partitioned as the table is"
    return "partitioned by " + ", ".join(str(f) for f in fields) if fields else "unpartitioned"


def _files(write: WritePlan) -> Iterator[str]:
    """Yields the settings of data files; a declared size is shown with the call that sets it."""
    sink = write.iceberg
    size = sink.bytes_per_file
    if size is not None:
        call = "target_file_size()" if sink.file_size else f"tune({sink.tuning})"
        yield f"{write.file_format} files of about {show_bytes(size)} ({call})"
    elif write.exists is False or sink.many_tables:
        size = int(new_table_properties(sink)["write.target-file-size-bytes"])
        yield f"{write.file_format} files of about {show_bytes(size)}"
    else:
        yield f"{write.file_format} files of the table's target size"
    yield from _settings(sink)


def _settings(sink: IcebergSink) -> Iterator[str]:
    if sink.codec is not None:
        yield sink.codec if sink.codec_level is None else f"{sink.codec} level {sink.codec_level}"
    if sink.distributes is not None:
        yield f"distribution {sink.distributes}"
    if sink.sort:
        yield f"sorted by {', '.join(sink.sort)}"
    if sink.row_changes is not None:
        yield f"changes {sink.row_changes}"


def trigger_text(trigger: Trigger) -> str:
    """The time between batches, and the bounds on their size."""
    parts = [f"every {show_seconds(trigger.every)} ({trigger.why})"]
    if trigger.max_rows is not None:
        parts.append(f"at most about {counted(trigger.max_rows, 'row')} a batch ({trigger.bound})")
    if trigger.max_files is not None:
        parts.append(f"at most {counted(trigger.max_files, 'file')} a batch (incremental(max_files=))")
    return ", ".join(parts)


def maintenance_text(settings: Maintenance) -> str:
    return ", ".join(_maintenance(settings))


def retry_text(retry: Retry) -> str:
    return ", ".join(_retries(retry))


def _compaction_note(write: WritePlan, settings: Maintenance) -> Iterator[tuple[str, str]]:
    """Yields a note on a v2 table of appends: after a compaction, it is unknown which commit added a row."""
    untraced = write.exists is False and write.mode.traits.only_adds and write.format_version < 3
    if settings.compact is not None and untraced:
        yield "", "`backfill --commits` finds no rows of a compacted v2 table; with .format_version(3) it does"


def _maintenance(settings: Maintenance) -> Iterator[str]:
    if settings.compact is not None:
        yield f"compact small files to {show_bytes(settings.compact) if settings.compact else 'the target file size'}"
    if settings.expire is not None:
        kept = f", except those for the readers at {', '.join(settings.readers)}" if settings.readers else ""
        yield f"expire snapshots after {show_seconds(settings.expire)}{kept}"
    if settings.orphans is not None:
        yield f"delete orphan files after {show_seconds(settings.orphans)}"


def _retries(retry: Retry) -> Iterator[str]:
    if retry.retries:
        pauses = [show_seconds(retry.pause(n + 1)) for n in range(min(retry.retries, 3))]
        more = ", ..." if retry.retries > 3 else ""
        yield f"conflicts {retry.retries} times (after {', '.join(pauses)}{more})"
    else:
        yield "conflicts never"
    yield f"outages for {show_seconds(retry.outage)}" if retry.outage else "outages never"


def show_bytes(count: int) -> str:
    """A size in its largest unit.

    Examples:
        >>> show_bytes(128 << 20), show_bytes(1536), show_bytes(3 << 30)
        ('128 MB', '1.5 KB', '3 GB')
    """
    for power, unit in ((40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} B"
