"""The facts of a lake, from the commits of its tables. The pipelines run in other processes, or do not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from helios.metrics.drain import Drain
from helios.table.snapshots import Table
from helios.table.status import Status
from helios.table.view import View
from helios.ui.facts import Backlog, Json, PipelineFacts, TimelineEntry
from helios.ui.feed import Feed
from helios.ui.lake import LakeReader, PipelineInTable
from helios.ui.series import finest_count

MIN_SECONDS, MAX_SHARE = 0.5, 0.5
"""The minimum seconds between two reads of the lake, and the maximum share of time that is spent reading."""


class WatchedLake:
    """The facts of a lake.

    Args:
        load_tables: Loads the tables of the lake, in their current state.
        view: Returns the tables and checkpoints from which the status of pipelines is read.
        token: The token that a page must send to see rejected rows.
        graph: The graph of a script. Without a script, the graph comes from the sources that the commits record.
        maintenance: For each pipeline that declares maintenance, the maintenance as text.
        targets: The target of each pipeline of a script. Other pipelines are not shown. None without a script.
    """

    def __init__(
        self,
        load_tables: Callable[[], Iterable[Table]],
        view: Callable[[], View],
        *,
        token: str,
        title: str,
        graph: Json | None = None,
        maintenance: Mapping[str, str] | None = None,
        targets: Mapping[str, str] | None = None,
    ) -> None:
        self.token = token
        self._title, self._graph, self._maintenance, self._targets = title, graph, maintenance or {}, targets
        self._feed = Feed()
        self._drains: dict[str, Drain] = {}
        self._lake = LakeReader(
            load_tables, view, min_seconds=MIN_SECONDS, max_share=MAX_SHARE, on_new=self._feed.add, eager=True
        )
        self._lake.start()

    def close(self) -> None:
        self._lake.stop()

    def items(self) -> Mapping[str, Json]:
        facts = self._pipelines()
        state = "running" if self._lake.was_read else "reading"
        run = {
            "mode": "lake",
            "title": self._title,
            "state": state,
            "stops": False,
            "problems": self._lake.problems,
        }
        return {
            "run": run,
            "graph": self._graph or _graph(self._lake),
            **{f"pipeline/{pipeline.name}": pipeline for pipeline in facts},
            **{f"table/{table.name}": table for table in self._lake.tables()},
        }

    def timeline(self, after: int) -> Sequence[TimelineEntry]:
        return self._feed.after(after)

    def add_open_pages(self, count: int) -> None:
        self._lake.add_open_pages(count)

    def series(self, pipeline: str) -> Json | None:
        return None

    def commits(self, table: str, before: str | None, count: int) -> Json | None:
        return self._lake.commits(table, before, count)

    def batch(self, table: str, snapshot: str) -> Json | None:
        return self._lake.batch(table, snapshot)

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> Json | None:
        return self._lake.rejects(table, snapshot, samples=samples)

    def table(self, name: str) -> Json | None:
        return self._lake.table(name)

    def metrics(self) -> str | None:
        return None

    def stop(self) -> bool:
        return False

    def _pipelines(self) -> list[PipelineFacts]:
        """The facts of each pipeline. A pipeline that writes several tables is shown with its last commit."""
        by_name: dict[str, list[PipelineInTable]] = {}
        for in_table in self._lake.statuses():
            if self._targets is None or in_table.status.pipeline in self._targets:
                by_name.setdefault(in_table.status.pipeline, []).append(in_table)
        facts = [self._facts(name, in_tables) for name, in_tables in by_name.items()]
        absent = {name: target for name, target in (self._targets or {}).items() if name not in by_name}
        return [*facts, *(self._absent(name, target) for name, target in absent.items())]

    def _facts(self, name: str, in_tables: Sequence[PipelineInTable]) -> PipelineFacts:
        statuses = [in_table.status for in_table in in_tables]
        last = max(statuses, key=lambda status: status.committed.timestamp() if status.committed else 0.0)
        running = next((in_table.running for in_table in in_tables if in_table.running is not None), None)
        notes = tuple(dict.fromkeys(note for status in statuses for note in status.notes))
        return PipelineFacts(
            name=name,
            target=last.table,
            state={True: "running", False: "resting", None: "committed"}[running],
            batches=last.batch + 1 if last.batch is not None else 0,
            rows=last.rows or 0,
            batch=last.batch,
            snapshot=str(last.snapshot) if last.snapshot is not None else None,
            committed=round(last.committed.timestamp() * 1000) if last.committed is not None else None,
            behind=self._behind(last, max(in_table.read_at for in_table in in_tables)),
            audit=next((status.audit for status in statuses if status.audit is not None), None),
            notes=notes,
            declared=self._maintenance.get(name),
        )

    def _absent(self, name: str, target: str) -> PipelineFacts:
        """A pipeline of the script for which no commit is known."""
        state = "new" if self._lake.was_read else "reading"
        return PipelineFacts(name=name, target=target, state=state, declared=self._maintenance.get(name))

    def _behind(self, status: Status, read_at: float) -> Backlog | None:
        """The backlog of a pipeline. The time until it is drained is estimated from the last reads."""
        amount = finest_count(status.behind_records, status.behind_files, status.behind)
        if status.seconds is None or amount is None:
            return None
        drain = self._drains.setdefault(status.pipeline, Drain())
        drain.add(read_at, amount)
        drained, grows = drain.estimate()
        return Backlog(
            snapshots=status.behind,
            seconds=status.seconds,
            files=status.behind_files,
            bytes=status.behind_bytes,
            records=status.behind_records,
            drained=round(drained) if drained is not None else None,
            grows=grows,
        )


def _graph(lake: LakeReader) -> Json:
    """The graph of a lake: the tables that pipelines write, and the sources that the commits record."""
    nodes: dict[str, dict[str, Json]] = {}
    edges: list[dict[str, Json]] = []

    def node(name: str, kind: str) -> dict[str, Json]:
        return nodes.setdefault(name, {"id": f"n{len(nodes)}", "kind": kind, "label": name, "pipelines": []})

    for status in (in_table.status for in_table in lake.statuses()):
        if status.batch is None:
            continue
        end = node(status.table, "sink")
        end["kind"], end["pipelines"] = "sink", sorted({*end["pipelines"], status.pipeline})
        for source in status.sources:
            edge = {"start": node(source, "source")["id"], "end": end["id"], "label": "", "dashed": False}
            if edge not in edges:
                edges.append(edge)
    return {"nodes": list(nodes.values()), "edges": edges}
