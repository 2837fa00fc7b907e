"""The workloads, by their names on the command line."""

from __future__ import annotations

from perf.harness.workload import Workload
from perf.workloads.append import Append, PartitionedAppend, WideAppend
from perf.workloads.changed import Backfill, Erase, Upsert, UpsertV2
from perf.workloads.folders import Csv, Json, Parquet
from perf.workloads.history import Changes, SmallCommits
from perf.workloads.large import LargeAppend, LargeUpsert
from perf.workloads.many import Fifty
from perf.workloads.processes import FirstCommit, NothingNew
from perf.workloads.pruned import Pruned
from perf.workloads.stateful import Dedupe, Expected, Joined, Totals, Windows

WORKLOADS: dict[str, type[Workload]] = {
    workload.name: workload
    for workload in (
        Append, WideAppend, PartitionedAppend, Csv, Json, Parquet, Pruned, Upsert, UpsertV2, Erase, Backfill, Windows,
        Dedupe, Totals, Joined, Expected, SmallCommits, Changes, Fifty,
        FirstCommit, NothingNew, LargeUpsert, LargeAppend,
    )
}  # fmt: skip
