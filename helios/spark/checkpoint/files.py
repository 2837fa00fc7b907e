"""The checkpoint folder of a pipeline: Spark's own logs, and beside them Helios's identity, lease and pins.

<checkpoint>/
  offsets/ commits/ sources/ state/   Spark's own logs; Helios reads them
  helios/identity.json                the pipeline that the checkpoint belongs to
  helios/start.json                   the starting positions of the followed sources, and how they were declared
  helios/lease.json                   the driver that runs on the checkpoint
  helios/renamed.json                 the new name of a renamed table; the only file in a checkpoint's former location
  helios/pins/N.json                  the snapshots of joined sources that batch N reads, written before the batch
  helios/seen.json                    the newest table metadata that the replicas of a catalog have returned
  helios/tables.json                  the routed and mirrored tables, with their UUIDs
  helios/mirror.json                  the database table of each mirrored table (see mirrored.py)
  helios/routes/N.json                the routed or mirrored tables that batch N writes, written before its first commit
  helios/files/N/                     which files each batch of followed source N reads (see helios.sources.files.log)
  helios/files/N.columns.json         the columns of the files of source N (see kept_columns.py)
  helios/columns/N.json               the columns that are inferred for the topics of source N
  helios/debezium/N.json              the columns and keys of the tables whose changes source N reads
  helios/landed/                      the last batch that was committed to each target (see landings.py)
  helios/again.json                   the batch that `--again` appends a second time (see repeat.py)
  helios/plans/STEPS.json             the plan of each set of steps (see helios.table.plans)
  helios/keys/                        the state of upserts, if it is not in the warehouse (see upsert_state.py)
  helios/lag/N.json                   the last lag of source N (see helios.table.lags)
  helios/maintenance/                 the times of the last maintenance tasks of each table
  helios/replay/, helios/backfill/    the notes of a replay or a backfill that is not finished
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, TypedDict

from pyspark.sql import SparkSession

from helios.catalog.names import file_name
from helios.errors import CheckpointError
from helios.plan.derivation import value_settings
from helios.plan.nodes import VERSION, Plan
from helios.spark.checkpoint.small_files import small_files
from helios.table.ledger import Starts
from helios.table.plans import FOLDER as PLANS
from helios.table.plans import LAST, KeptPlan, lasting_fields
from helios.version import VERSION as HELIOS

TABLES_FIX = "restore it from a backup, or refill the tables: `helios run --full-refresh`."

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

KEYS, FILES, LANDED, AGAIN = "helios/keys", "helios/files", "helios/landed", "helios/again.json"
RENAMED = "helios/renamed.json"
SPARK_LOGS = ("offsets", "commits", "sources", "state", "metadata")
READ_SCHEMAS = "helios/schemas"
PROGRESS = ("helios/start.json", "helios/pins", "helios/routes", LANDED, "helios/lag", AGAIN)
SPARK_KEEPS_BATCHES = 100
"""Spark's default of `spark.sql.streaming.minBatchesToRetain`: the minimum number of batches in its logs."""


@dataclass(frozen=True)
class Identity:
    """The pipeline that a checkpoint belongs to.

    Attributes:
        id: The checkpoint's own id, which the pipeline's record in the target contains, too.
        target_uuid: The target's UUID; empty until the target exists.
        state: The steps and sources on which the state in the checkpoint depends (`Plan.state_texts`).
        path: The read path, as the value of a `ReadPath`.
        uuids: The UUID of each source, by which a renamed table is recognized; None for a source that is not a table.
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
                f"the checkpoint {location} was written by a newer Helios (it has version {version}, and this Helios "
                f"reads up to {VERSION}).",
                fix="upgrade helios.",
            )
        return identity


class Routes(TypedDict):
    """The content of `helios/routes/N.json`: a batch, and the values that name the tables that it writes."""

    v: int
    sources: list[Mapping[str, object]]
    steps: str
    values: list[str]


class StartEntry(TypedDict):
    """The starting position of a followed source, from the pipeline's first start.

    `declared` is the start as the script declares it, such as "latest"; `place` is the position that it resolved to.
    """

    declared: str
    branch: str | None
    uuid: str | None
    place: Mapping[str, object]


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self.files = small_files(spark, location)
        self.location = self.files.root

    # identity

    def identity(self) -> Identity | None:
        """The recorded identity; None for a folder that no pipeline has used.

        Raises:
            CheckpointError: The folder contains a stream's progress but no identity.
        """
        text = self.files.read("helios/identity.json")
        if text is not None:
            return Identity.parse(text, self.location)
        if self.files.names("offsets") or self.files.read("metadata") is not None:
            raise CheckpointError(
                f"{self.location} holds a stream's progress but no Helios identity: another program wrote it, or its "
                "helios/ folder was lost.",
                fix="restore helios/identity.json from a backup, or give another .checkpoint(location). Where the "
                "target has the pipeline's record, `helios run --new-checkpoint` resumes at its position.",
            )
        return None

    def create(self, identity: Identity) -> None:
        self.files.write("helios/identity.json", identity.as_json())

    def keep_plan(self, plan: Plan, *, of_run: bool = True) -> None:
        """Stores the plan of a starting run, of a replay or of a backfill, unless it is stored already.

        The plan of a run (`of_run`) is the one with which the next run is compared.
        """
        name = f"{PLANS}/{plan.fingerprint}.json"
        content = lasting_fields(plan.as_json(), plan.state_texts)
        text = self.files.read(name)
        previous = KeptPlan.parse(text) if text is not None else None
        as_stored = json.loads(json.dumps(content))
        if previous is not None and _read_settings(previous.plan["sources"]) != _read_settings(content["sources"]):
            # The previous plan is kept, too: a backfill needs to know how earlier rows were read.
            self.files.write(f"{PLANS}/{plan.fingerprint}-{previous.at:%Y%m%d%H%M%S}.json", previous.as_json())
        if previous is None or previous.version != HELIOS or previous.plan != as_stored:
            new = KeptPlan(steps=plan.fingerprint, version=HELIOS, at=datetime.now(UTC), plan=content)
            self.files.write(name, new.as_json())
        if of_run and self.files.read(LAST) != plan.fingerprint:
            self.files.write(LAST, plan.fingerprint)

    def move(self, to: Checkpoint) -> None:
        """Moves the whole folder to another location, which must be empty or have only `helios/renamed.json`."""
        if to.files.read(RENAMED) is not None and to.identity() is None:
            to.files.delete("helios")
        self.files.move(to.files)

    def write_new_name(self, table: str) -> None:
        """Writes the new name of the pipeline's table into the former location of the checkpoint."""
        self.files.write(RENAMED, json.dumps({"v": 1, "table": table}))

    def rename_target(self, old: str, new: str) -> None:
        """Renames the files that are named after the target, unless they have the new name already."""
        for folder, suffix in ((KEYS, ""), (LANDED, ".json")):
            old_name, new_name = f"{file_name(old)}{suffix}", f"{file_name(new)}{suffix}"
            names = self.files.names(folder)
            if old_name in names and new_name in names:
                raise CheckpointError(
                    f"the checkpoint {self.location} has {folder} of {new} beside those of its former name, {old}.",
                    fix=f"if a move was interrupted, delete {folder}/{new_name} in it: the move is then repeated.",
                )
            if old_name in names:
                self.files.rename(f"{folder}/{old_name}", f"{folder}/{new_name}")

    def clear(self) -> None:
        """Deletes all progress, but not, for example, the identity, the lease and inferred columns."""
        for name in (*SPARK_LOGS, *PROGRESS, READ_SCHEMAS, "helios/tables.json", FILES, KEYS):
            self.files.delete(name)

    def rewind(self) -> None:
        """Deletes Spark's logs and all positions; keeps the upsert state, the list of tables and the logs of files."""
        for name in (*SPARK_LOGS, *PROGRESS):
            self.files.delete(name)
        for target in self.files.names("helios/keys"):
            self._renumber(f"helios/keys/{target}")

    def _renumber(self, state: str) -> None:
        """Gives the batches of an upsert state negative numbers, in the same order: new batches begin at 0 again."""
        numbered = [
            (int(number), f"{state}/{kind}")
            for kind in ("base", "delta")
            for number in self.files.names(f"{state}/{kind}")
            if number.removeprefix("-").isdigit()
        ]
        shift = max((number for number, _ in numbered), default=-1) + 1
        if shift > 0:
            for number, folder in sorted(numbered):
                self.files.rename(f"{folder}/{number}", f"{folder}/{number - shift}")

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
        """Deletes a planned batch, so that Spark plans it again."""
        self.files.delete(f"offsets/{batch}")
        self.files.delete(f"helios/pins/{batch}.json")

    def verify(self) -> None:
        """Refuses a checkpoint that Spark would misread silently, and the former location of a moved checkpoint.

        Raises:
            CheckpointError: `metadata` is lost, the last commit or one of the last two offsets is damaged, or the
                pipeline's table was renamed.
        """
        renamed = self.files.read_json(RENAMED, "restore it; or delete it if the table was not renamed.")
        if renamed is not None and self.identity() is None:
            raise CheckpointError(
                f"the table of this pipeline was renamed to {renamed['table']}; this run would fill a "
                "second table under the former name. Nothing was written.",
                fix=f"write the new name in the script; for a new table under the former name, delete {self.location}/"
                f"{RENAMED}.",
            )
        planned = self.batches("offsets")
        if planned and not (self.files.read("metadata") or "").strip():
            raise CheckpointError(
                f"{self.location}/metadata is lost: Spark would take the checkpoint for one of a new query.",
                fix="restore the file from a backup, or start a new one with `helios run --new-checkpoint`.",
            )
        for batch in planned[-2:]:  # Spark reads the last two entries
            self.offsets(batch)
        committed = self.batches("commits")
        if committed:
            self._verify_commit(committed[-1])

    def _verify_commit(self, batch: int) -> None:
        version, _, entry = (self.files.read(f"commits/{batch}") or "").partition("\n")
        try:
            if version.strip() not in ("v1", "v2") or not isinstance(json.loads(entry), dict):
                raise ValueError("not an entry of a commit log")
        except ValueError as error:
            raise CheckpointError(
                f"{self.location}/commits/{batch} is damaged ({error}). The file says that batch {batch} is finished.",
                fix=f"delete the file, and .{batch}.crc beside it if there is one: Helios then looks batch {batch} up "
                "in the target, and does not write it again if the target has it.",
            ) from error

    # starting positions

    def start(self) -> list[StartEntry] | None:
        """The starting positions, one per followed source; None before the pipeline's first start.

        Raises:
            CheckpointError: The file is damaged, or it is lost although batches were planned.
        """
        text = self.files.read("helios/start.json")
        try:
            if text is not None:
                return list(json.loads(text))
            if not self.batches("offsets"):
                return None
            why = "is lost: the positions at which the followed sources were first read are unknown"
        except (ValueError, TypeError) as error:
            why = f"is damaged ({error})"
        raise CheckpointError(
            f"{self.location}/helios/start.json {why}.",
            fix="restore the file from a backup, or resume at the target's position: `helios run --new-checkpoint`.",
        )

    def write_start(self, starts: Sequence[StartEntry] | Starts) -> None:
        self.files.write("helios/start.json", json.dumps(list(starts)))

    # routed and mirrored tables

    def tables(self) -> dict[str, str]:
        """The UUIDs of the routed or mirrored tables that this checkpoint has claimed, by table name."""
        return dict(self.files.read_json("helios/tables.json", TABLES_FIX) or {})

    def write_tables(self, tables: Mapping[str, str]) -> None:
        self.files.write("helios/tables.json", json.dumps(dict(tables)))

    def routes(self, batch: int) -> Routes | None:
        """The content of `helios/routes/N.json` for a batch; None for a new batch."""
        routes: Routes | None = self.files.read_json(f"helios/routes/{batch}.json")
        return routes

    def write_routes(
        self, batch: int, sources: Sequence[Mapping[str, object]], steps: str, values: Sequence[str]
    ) -> None:
        """Records which tables a batch writes, before the first of them is committed."""
        routes = Routes(v=VERSION, sources=list(sources), steps=steps, values=list(values))
        self.files.write(f"helios/routes/{batch}.json", json.dumps(routes))
        self._delete_older("helios/routes", batch)

    # pins

    def pins(self, batch: int) -> dict[str, int | str | None] | None:
        """The pins of the joined sources that a batch reads; None if none are recorded for the batch.

        For source N of the plan, the key "N" has its snapshot's id (None for an empty table), and "name of N" the
        source's name. For a source without snapshots, "state of N" has the JSON that identifies its content.
        """
        fix = f"if no table has a part of batch {batch}, delete the file: the batch then joins the present tables."
        pins: dict[str, int | str | None] | None = self.files.read_json(f"helios/pins/{batch}.json", fix)
        return pins

    def pin(self, batch: int, pins: Mapping[str, int | str | None]) -> None:
        """Records the pins of a batch before it reads them; deletes pins of batches that Spark's logs have dropped."""
        self.files.write(f"helios/pins/{batch}.json", json.dumps(dict(pins)))
        self._delete_older("helios/pins", batch)

    def _delete_older(self, folder: str, batch: int) -> None:
        """Deletes the files of batches that Spark's own logs no longer keep."""
        if batch >= SPARK_KEEPS_BATCHES and batch % 20 == 0:  # every 20 batches: a listing costs time
            for name in self.files.names(folder):
                number = name.removesuffix(".json")
                if number.isdigit() and int(number) < batch - SPARK_KEEPS_BATCHES:
                    self.files.delete(f"{folder}/{name}")


def _read_settings(sources: Iterable[Mapping[str, object]]) -> str:
    """The fields of a plan's sources that decide how their values are read, as JSON."""
    return json.dumps([value_settings(source) for source in sources])
