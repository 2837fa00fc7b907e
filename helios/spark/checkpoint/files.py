"""The checkpoint folder of a pipeline: Spark's own logs, and beside them Helios's identity, lease and pins.

<checkpoint>/
  offsets/ commits/ sources/ state/   Spark's; read
  helios/identity.json                the pipeline that the checkpoint belongs to
  helios/start.json                   the starting offsets of the followed tables, and how they were declared
  helios/lease.json                   the driver that is alive on it
  helios/renamed.json                 where a table was renamed: the only file, at the place of the checkpoint of before
  helios/pins/N.json                  the snapshots that batch N reads, written before the batch
  helios/seen.json                    the table metadata that replicas of a catalog have shown (see freshness.py)
  helios/tables.json, mirror.json     the tables that rows name, with their UUIDs; of a mirror what they are of
  helios/routes/N.json                the tables that routed batch N writes, written before its first commit
  helios/files/N/                     which files each batch of followed source N reads (see helios.sources.files.log)
  helios/files/N.columns.json         the columns of its files (see kept_columns.py)
  helios/landed/                      the last batch in each target (see landings.py)
  helios/again.json                   a batch that is appended again (see repeat.py)
  helios/plans/STEPS.json             the plan of each set of steps (see helios.table.plans)
  helios/keys/                        the state of upserts, where it is not in the warehouse (see upsert_state.py)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, TypedDict

from pyspark.sql import SparkSession

from helios.catalog.names import file_name
from helios.errors import CheckpointError
from helios.plan.nodes import VERSION, Plan
from helios.spark.checkpoint.small_files import small_files
from helios.table.ledger import Starts
from helios.table.plans import FOLDER as PLANS
from helios.table.plans import LAST, KeptPlan, lasting
from helios.version import VERSION as HELIOS

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

KEYS, FILES, LANDED, AGAIN = "helios/keys", "helios/files", "helios/landed", "helios/again.json"
RENAMED = "helios/renamed.json"
SPARKS_OWN = ("offsets", "commits", "sources", "state", "metadata")
PROGRESS = ("helios/start.json", "helios/pins", "helios/routes", LANDED, "helios/lag", AGAIN)


@dataclass(frozen=True)
class Identity:
    """The pipeline that a checkpoint belongs to.

    Attributes:
        id: The checkpoint's own id, which the target's ledger names.
        pipeline: The pipeline's identity.
        target: The target's name.
        target_uuid: The target's UUID; empty until the target exists.
        sources: The names of the sources.
        state: The stateful steps.
        path: The read path.
        uuids: The UUIDs of the sources that are tables, in their order: they tell a source that was renamed.
    """

    id: str
    pipeline: str
    target: str
    target_uuid: str
    sources: tuple[str, ...]
    state: tuple[str, ...]
    path: str
    uuids: tuple[str | None, ...]

    def as_json(self) -> str:
        return json.dumps(
            {
                "v": VERSION,
                "id": self.id,
                "pipeline": self.pipeline,
                "target": self.target,
                "target_uuid": self.target_uuid,
                "sources": self.sources,
                "state": self.state,
                "path": self.path,
                "uuids": self.uuids,
            }
        )

    @classmethod
    def parse(cls, text: str, location: str) -> Identity:
        try:
            fields = json.loads(text)
            version = int(fields["v"])
            identity = cls(
                id=fields["id"],
                pipeline=fields["pipeline"],
                target=fields["target"],
                target_uuid=fields["target_uuid"],
                sources=tuple(fields["sources"]),
                state=tuple(fields["state"]),
                path=fields["path"],
                uuids=tuple(fields["uuids"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{location}/helios/identity.json cannot be read ({error}).",
                fix="restore the checkpoint from a backup.",
            ) from error
        if version > VERSION:
            raise CheckpointError(
                f"the checkpoint {location} was written by a newer Helios (its version is {version}, ours {VERSION}).",
                fix="upgrade helios.",
            )
        return identity


class Routes(TypedDict):
    """The tables that a routed batch writes."""

    v: int
    sources: list[Mapping[str, object]]
    steps: str
    values: list[str]


class StartEntry(TypedDict):
    """The first position of a followed table, from the pipeline's first start."""

    declared: str
    branch: str | None
    uuid: str | None
    place: Mapping[str, object]


class Checkpoint:
    """The checkpoint folder of one pipeline.

    Args:
        spark: The session.
        location: The folder.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.files = small_files(spark, location)
        self.location = self.files.root

    # identity

    def identity(self) -> Identity | None:
        """The recorded identity; None for a folder that no pipeline has used.

        Raises:
            CheckpointError: The folder holds a stream's progress but no identity.
        """
        text = self.files.read("helios/identity.json")
        if text is not None:
            return Identity.parse(text, self.location)
        if self.files.names("offsets") or self.files.read("metadata") is not None:
            raise CheckpointError(
                f"{self.location} holds a stream's progress but no Helios identity: it is another program's, or its "
                "helios/ folder was lost.",
                fix="restore helios/identity.json from a backup, or give another .checkpoint(location). Where the "
                "target has the pipeline's record, `helios run --new-checkpoint` resumes at its position.",
            )
        return None

    def create(self, identity: Identity) -> None:
        self.files.write("helios/identity.json", identity.as_json())

    def keep_plan(self, plan: Plan) -> None:
        """Keeps the plan of a run that begins, unless it is kept already."""
        name = f"{PLANS}/{plan.fingerprint}.json"
        shown, text = lasting(plan.as_json(), plan.state), self.files.read(name)
        kept = KeptPlan.parse(text) if text is not None else None
        if kept is None or (kept.plan, kept.version) != (json.loads(json.dumps(shown)), HELIOS):
            new = KeptPlan(steps=plan.fingerprint, version=HELIOS, at=datetime.now(UTC), plan=shown)
            self.files.write(name, new.as_json())
        if self.files.read(LAST) != plan.fingerprint:
            self.files.write(LAST, plan.fingerprint)

    def move(self, to: Checkpoint) -> None:
        """Moves the whole folder to another place, which must be empty but for a note of `leave`."""
        if to.files.read(RENAMED) is not None and to.identity() is None:
            to.files.delete("helios")
        self.files.move(to.files)

    def leave(self, table: str) -> None:
        """Notes in the old location the new name of the pipeline's table."""
        self.files.write(RENAMED, json.dumps({"v": 1, "table": table}))

    def rename_target(self, old: str, new: str) -> None:
        """Moves the files kept under a target's name to another name; files that are moved already stay."""
        for folder, end in ((KEYS, ""), (LANDED, ".json")):
            before, now, there = f"{file_name(old)}{end}", f"{file_name(new)}{end}", self.files.names(folder)
            if before in there and now in there:
                raise CheckpointError(
                    f"the checkpoint {self.location} has {folder} of {new} beside those of its former name, {old}.",
                    fix=f"delete {folder}/{now} in it if a move was interrupted, which is then repeated.",
                )
            if before in there:
                self.files.rename(f"{folder}/{before}", f"{folder}/{now}")

    def clear(self) -> None:
        """Forgets all progress; the identity and the lease stay."""
        for name in (*SPARKS_OWN, *PROGRESS, "helios/tables.json", FILES, KEYS):
            self.files.delete(name)

    def rewind(self) -> None:
        """Forgets Spark's offsets; the state of upserts, the routed tables and the logs of files stay."""
        for name in (*SPARKS_OWN, *PROGRESS):
            self.files.delete(name)
        for target in self.files.names("helios/keys"):
            self._renumber(f"helios/keys/{target}")

    def _renumber(self, state: str) -> None:
        """Gives the batches of an upsert state numbers before 0, in the same order."""
        kept = [
            (int(number), f"{state}/{kind}")
            for kind in ("base", "delta")
            for number in self.files.names(f"{state}/{kind}")
            if number.removeprefix("-").isdigit()
        ]
        past = max((number for number, _ in kept), default=-1) + 1
        for number, folder in sorted(kept) if past > 0 else []:
            self.files.rename(f"{folder}/{number}", f"{folder}/{number - past}")

    # Spark's logs

    def batches(self, log: str) -> list[int]:
        """The batch ids of Spark's `offsets` or `commits` log, ascending."""
        return sorted(int(name) for name in self.files.names(log) if name.isdigit())

    def offsets(self, batch: int) -> list[dict[str, Json] | None]:
        """The end offsets that Spark planned for a batch, one per source; None for a source without data yet.

        Raises:
            CheckpointError: The entry is missing or damaged.
        """
        text = self.files.read(f"offsets/{batch}")
        lines = (text or "").splitlines()
        try:
            if not lines or lines[0] != "v1":
                raise ValueError("not an offset log of version 1")
            return [None if line == "-" else json.loads(line) for line in lines[2:]]
        except ValueError as error:
            raise CheckpointError(
                f"{self.location}/offsets/{batch} is missing or damaged ({error}).",
                fix="restore the checkpoint from a backup, or start a new one with `helios run --new-checkpoint`.",
            ) from error

    def forget(self, batch: int) -> None:
        """Deletes a planned batch, so that it is planned again."""
        self.files.delete(f"offsets/{batch}")
        self.files.delete(f"helios/pins/{batch}.json")

    def verify(self) -> None:
        """Refuses a checkpoint that Spark would misread silently, and the old location of one that was moved.

        Raises:
            CheckpointError: `metadata` is lost, the last offsets or the last commit are damaged, or the table was
                renamed.
        """
        renamed = self.files.read(RENAMED)
        if renamed is not None and self.identity() is None:
            raise CheckpointError(
                f"the table of this pipeline was renamed to {json.loads(renamed)['table']}, and would be filled once "
                "more under its former name; nothing was written.",
                fix=f"write the new name in the script; for a new table under the former name, delete {self.location}/"
                f"{RENAMED}.",
            )
        planned = self.batches("offsets")
        if planned and not (self.files.read("metadata") or "").strip():
            raise CheckpointError(
                f"{self.location}/metadata is lost: Spark would take the checkpoint for a new query's.",
                fix="restore the file from a backup, or start a new one with `helios run --new-checkpoint`.",
            )
        for batch in planned[-2:]:  # those that Spark reads
            self.offsets(batch)
        for batch in self.batches("commits")[-1:]:
            self._verify_commit(batch)

    def _verify_commit(self, batch: int) -> None:
        first, *rest = (self.files.read(f"commits/{batch}") or "").splitlines() or [""]
        try:
            if first not in ("v1", "v2") or not isinstance(json.loads("".join(rest)), dict):
                raise ValueError("not an entry of a commit log")
        except ValueError as error:
            raise CheckpointError(
                f"{self.location}/commits/{batch} is damaged ({error}): Spark's note that batch {batch} is finished.",
                fix=f"delete the file, and .{batch}.crc beside it if there is one: batch {batch} is then looked up in "
                "the target, and not written again where the target has it.",
            ) from error

    # starting offsets

    def start(self) -> list[StartEntry] | None:
        """The starting offsets, one per followed table; None before the pipeline first began.

        Raises:
            CheckpointError: The file is damaged, or lost though batches were planned.
        """
        text = self.files.read("helios/start.json")
        try:
            if text is not None:
                return list(json.loads(text))
            if not self.batches("offsets"):
                return None
            why = "is lost: where the followed tables were first read from is not known"
        except (ValueError, TypeError) as error:
            why = f"is damaged ({error})"
        raise CheckpointError(
            f"{self.location}/helios/start.json {why}.",
            fix="restore the file from a backup, or resume at the target's position: `helios run --new-checkpoint`.",
        )

    def write_start(self, starts: Sequence[StartEntry] | Starts) -> None:
        self.files.write("helios/start.json", json.dumps(list(starts)))

    # routed tables

    def tables(self) -> dict[str, str]:
        """The routed tables that this checkpoint has claimed, with their UUIDs."""
        return dict(json.loads(self.files.read("helios/tables.json") or "{}"))

    def write_tables(self, tables: Mapping[str, str]) -> None:
        self.files.write("helios/tables.json", json.dumps(dict(tables)))

    def routes(self, batch: int) -> Routes | None:
        """The manifest of a routed batch: what it read, its steps, and the values that name its tables."""
        text = self.files.read(f"helios/routes/{batch}.json")
        return json.loads(text) if text else None

    def write_routes(
        self, batch: int, sources: Sequence[Mapping[str, object]], steps: str, values: Sequence[str]
    ) -> None:
        """Records which tables a batch writes, before the first of them is committed."""
        manifest = Routes(v=VERSION, sources=list(sources), steps=steps, values=list(values))
        self.files.write(f"helios/routes/{batch}.json", json.dumps(manifest))
        self._drop_older("helios/routes", batch)

    # pins

    def pins(self, batch: int) -> dict[str, int | str | None] | None:
        """The pins of a batch's joins: snapshots, by the source's index, and states; None when none are recorded."""
        text = self.files.read(f"helios/pins/{batch}.json")
        return json.loads(text) if text else None

    def pin(self, batch: int, pins: Mapping[str, int | str | None]) -> None:
        """Records the states that a batch is joined with, before it reads them; drops pins older than Spark's logs."""
        self.files.write(f"helios/pins/{batch}.json", json.dumps(dict(pins)))
        self._drop_older("helios/pins", batch)

    def _drop_older(self, folder: str, batch: int) -> None:
        """Deletes the files of batches that Spark's own logs no longer keep."""
        if batch >= 100 and batch % 20 == 0:
            for name in self.files.names(folder):
                number = name.removesuffix(".json")
                if number.isdigit() and int(number) < batch - 100:
                    self.files.delete(f"{folder}/{name}")
