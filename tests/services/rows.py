"""The table of servers, for the command line and the fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.services import azurite, cluster, debezium, gcs, hive, kafka, minio, moto, nessie, postgres, rest
from tests.services.artifacts import Artifact, Progress
from tests.services.server import Unavailable


class Running(Protocol):
    """A server that runs."""

    def addresses(self) -> dict[str, str]:
        """What a client must know, by name."""


@dataclass(frozen=True)
class Row:
    """A server that the tests can start.

    Args:
        name: As on the command line and in a fixture's name.
        about: What it stands for.
        artifacts: What it is made of.
        start: Starts it, with its data in a folder, and whatever else it needs.
    """

    name: str
    about: str
    artifacts: tuple[Artifact, ...]
    start: Callable[[ExitStack, Path | None], Running]

    def install(self, progress: Progress) -> None:
        """Builds or fetches what is missing.

        Raises:
            Unavailable: It cannot be had; with the cause.
        """
        for artifact in self.artifacts:
            artifact.install(progress)

    def missing(self) -> Unavailable | None:
        """Why it cannot be started; None if it can."""
        for artifact in self.artifacts:
            try:
                artifact.find()
            except Unavailable as error:
                return error
        return None

    @contextmanager
    def running(self, folder: Path | None = None) -> Iterator[Running]:
        """The server, started.

        Raises:
            Unavailable: It is not installed.
        """
        with ExitStack() as stack:
            yield self.start(stack, folder)


def _nessie(stack: ExitStack, folder: Path | None) -> Running:
    storage = stack.enter_context(minio.Minio(folder and folder / "minio"))
    return stack.enter_context(nessie.Nessie(f"s3://{storage.bucket('nessie')}/warehouse", storage, folder))


def _debezium(stack: ExitStack, folder: Path | None) -> Running:
    """A Debezium server that follows all tables of a database of its own."""
    broker = stack.enter_context(kafka.Kafka(folder and folder / "kafka"))
    database = stack.enter_context(postgres.Postgres())
    server = debezium.Debezium(database, broker, tables="public[.].*", prefix="changes", folder=folder)
    return stack.enter_context(server)


ROWS = (
    Row("minio", "S3", minio.ARTIFACTS, lambda stack, folder: stack.enter_context(minio.Minio(folder))),
    Row("rest", "REST catalog", rest.ARTIFACTS, lambda stack, folder: stack.enter_context(rest.Rest(folder=folder))),
    Row("moto", "Glue, and S3", moto.ARTIFACTS, lambda stack, folder: stack.enter_context(moto.Moto(folder))),
    Row("hive", "Hive Metastore", hive.ARTIFACTS, lambda stack, folder: stack.enter_context(hive.Hive(folder=folder))),
    Row("azurite", "ADLS", azurite.ARTIFACTS, lambda stack, folder: stack.enter_context(azurite.Azurite(folder))),
    Row("gcs", "Google Cloud Storage", gcs.ARTIFACTS, lambda stack, folder: stack.enter_context(gcs.Gcs(folder))),
    Row("nessie", "Nessie, on MinIO", (*nessie.ARTIFACTS, *minio.ARTIFACTS), _nessie),
    Row("kafka", "Kafka", kafka.ARTIFACTS, lambda stack, folder: stack.enter_context(kafka.Kafka(folder))),
    Row("postgres", "PostgreSQL", postgres.ARTIFACTS, lambda stack, _: stack.enter_context(postgres.Postgres())),
    Row("debezium", "Debezium, of PostgreSQL", (*debezium.ARTIFACTS, *postgres.ARTIFACTS, *kafka.ARTIFACTS), _debezium),
    Row(
        "cluster",
        "Spark standalone cluster of two workers",
        cluster.ARTIFACTS,
        lambda stack, folder: stack.enter_context(cluster.Cluster(folder=folder)),
    ),
)
BY_NAME = {row.name: row for row in ROWS}
