"""The checkpoint folder of a pipeline: Spark's own logs, and beside them Helios's identity, lease and pins.

<checkpoint>/
  offsets/ commits/ sources/ state/   Spark's; read
  helios/identity.json                the pipeline that the checkpoint belongs to
  helios/start.json                   the starting offsets of the followed tables, and how they were declared
  helios/lease.json                   the driver that is alive on it
  helios/pins/N.json                  the snapshots that batch N reads, written before the batch
  helios/seen.json                    the table metadata that replicas of a catalog have shown (see freshness.py)
  helios/tables.json, mirror.json     the tables that rows name, with their UUIDs; of a mirror what they are of
  helios/routes/N.json                the tables that routed batch N writes, written before its first commit
  helios/files/N/                     which files each batch of followed source N reads (see helios.files.log)
  helios/landed/                      the last batch in each target (see landings.py)
  helios/again.json                   a batch that is appended again (see repeat.py)
  helios/keys/                        the state of upserts (see upsert_state.py)
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.errors import CheckpointError
from helios.plan.nodes import VERSION
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import java_class
from helios.spark.jvm.names import names_of
from helios.spark.jvm.types.hadoop import JavaFileSystem, JavaPath
from helios.spark.jvm.types.spark import JavaSparkSession

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

KEYS, FILES, AGAIN = "helios/keys", "helios/files", "helios/again.json"
SPARKS_OWN = ("offsets", "commits", "sources", "state", "metadata")
PROGRESS = ("helios/start.json", "helios/pins", "helios/routes", "helios/landed", "helios/lag", AGAIN)

WHOLE_OBJECTS = ("s3a", "gs")
"""Stores where a file appears when it is closed, whole and in the place of an older one; their renames copy."""


class HadoopFiles:
    """Small text files on any file system that Spark can write, through Hadoop.

    Args:
        spark: The session, whose conf has the file system's credentials.
        root: The folder that all names are relative to.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm = classes()
        base = self._path(root)
        session: JavaSparkSession = spark._jsparkSession
        system = base.getFileSystem(session.sessionState().newHadoopConf())
        # A local file and its checksum are two renames; a kill between them makes it unreadable: no checksums here.
        self._fs: JavaFileSystem = system.getRawFileSystem() if system.getScheme() == "file" else system
        self._whole_objects = system.getScheme() in WHOLE_OBJECTS
        self.root = str(system.makeQualified(base).toString())

    def _path(self, location: str) -> JavaPath:
        path: JavaPath = self._jvm.org.apache.hadoop.fs.Path(location)
        return path

    def _at(self, name: str) -> JavaPath:
        return self._path(f"{self.root}/{name}")

    def read(self, name: str) -> str | None:
        """The file's text; None when there is no such file."""
        path = self._at(name)
        if not self._fs.exists(path):  # asked first: an exception takes ten times as long to come here
            return None
        try:
            stream = self._fs.open(path)
        except Py4JJavaError as error:
            if java_class(error) == "FileNotFoundException":
                return None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replaces a file, so that no reader sees a half: a draft is written beside it, then renamed."""
        target = self._at(name)
        if self._whole_objects:
            stream = self._fs.create(target, True)
            stream.write(text.encode())
            stream.close()
            return
        draft = self._at(f"{name}.{uuid.uuid4().hex[:8]}.tmp")
        stream = self._fs.create(draft, True)
        stream.write(text.encode())
        stream.close()
        self._fs.delete(self._checksum(name), False)  # Spark's own, which would not fit any more
        if not self._fs.rename(draft, target):
            self._fs.delete(target, False)
            self._fs.rename(draft, target)

    def delete(self, name: str) -> None:
        """Deletes a file or a folder, with the checksum that Spark may have left beside it."""
        self._fs.delete(self._at(name), True)
        self._fs.delete(self._checksum(name), False)

    def rename(self, name: str, to: str) -> None:
        """Renames a file or a folder; nothing may be at the new name."""
        self._fs.rename(self._at(name), self._at(to))

    def _checksum(self, name: str) -> JavaPath:
        folder, _, base = name.rpartition("/")
        return self._at(f"{folder}/.{base}.crc" if folder else f".{base}.crc")

    def move(self, to: HadoopFiles) -> None:
        """Renames the root to another one's, which must not exist or be empty."""
        target = self._path(to.root)
        self._fs.mkdirs(target.getParent())
        self._fs.delete(target, False)
        if not self._fs.rename(self._path(self.root), target):
            raise CheckpointError(f"the checkpoint {self.root} cannot be moved to {to.root}.", fix="move it by hand.")

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is missing."""
        path = self._at(folder)
        return names_of(self._fs.listStatus(path)) if self._fs.exists(path) else []


@dataclass(frozen=True)
class Identity:
    """The pipeline that a checkpoint belongs to; written once, then only compared.

    Attributes:
        id: The checkpoint's own id, which the target's ledger names.
        pipeline: The pipeline's identity.
        target: The target's name.
        target_uuid: The target's UUID; empty until the target exists.
        sources: The names of the sources.
        state: The stateful steps.
        path: The read path.
    """

    id: str
    pipeline: str
    target: str
    target_uuid: str
    sources: tuple[str, ...]
    state: tuple[str, ...]
    path: str

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
    """Which tables a routed batch writes."""

    v: int
    sources: list[Mapping[str, object]]
    steps: str
    values: list[str]


class StartEntry(TypedDict):
    """Where a followed table is read from since the pipeline first began."""

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
        self.files = HadoopFiles(spark, location)
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
                fix="restore helios/identity.json from a backup, or give another .checkpoint(location).",
            )
        return None

    def create(self, identity: Identity) -> None:
        self.files.write("helios/identity.json", identity.as_json())

    def move(self, to: Checkpoint) -> None:
        """Moves the whole folder to another place, which must be empty."""
        self.files.move(to.files)

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
        """Refuses a checkpoint that Spark would misread silently.

        Raises:
            CheckpointError: `metadata` is lost, or the last offsets or the last commit are damaged.
        """
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
            planned = self.batches("offsets")
            if not planned or '"logOffset"' in (self.files.read(f"offsets/{planned[-1]}") or ""):
                return None  # a folder that Spark's own stream followed, as earlier versions had it, stored none
            why = "is lost: where the followed tables were first read from is not known"
        except (ValueError, TypeError) as error:
            why = f"is damaged ({error})"
        raise CheckpointError(
            f"{self.location}/helios/start.json {why}.",
            fix="restore the file from a backup, or resume at the target's position: `helios run --new-checkpoint`.",
        )

    def write_start(self, starts: list[StartEntry]) -> None:
        self.files.write("helios/start.json", json.dumps(starts))

    # routed tables

    def tables(self) -> dict[str, str | None]:
        """The routed tables that this checkpoint has claimed, with their UUIDs; earlier versions kept names alone."""
        found = json.loads(self.files.read("helios/tables.json") or "{}")
        return dict(found) if isinstance(found, dict) else dict.fromkeys(found)

    def write_tables(self, tables: Mapping[str, str | None]) -> None:
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
        """What a batch is joined with: snapshots, by the source's index, and states; None when none are recorded."""
        text = self.files.read(f"helios/pins/{batch}.json")
        return json.loads(text) if text else None

    def pin(self, batch: int, pins: Mapping[str, int | str | None]) -> None:
        """Records what a batch is joined with, before it reads that; drops pins older than Spark's logs."""
        self.files.write(f"helios/pins/{batch}.json", json.dumps(dict(pins)))
        self._drop_older("helios/pins", batch)

    def _drop_older(self, folder: str, batch: int) -> None:
        """Deletes the files of batches that Spark's own logs no longer keep."""
        if batch >= 100 and batch % 20 == 0:
            for name in self.files.names(folder):
                number = name.removesuffix(".json")
                if number.isdigit() and int(number) < batch - 100:
                    self.files.delete(f"{folder}/{name}")
