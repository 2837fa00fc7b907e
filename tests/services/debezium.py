"""Debezium Server: the changes of a PostgreSQL server as records in Kafka; it needs a newer Java than Spark does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.artifacts import Archive, Java
from tests.services.kafka import Kafka
from tests.services.postgres import USER, Postgres
from tests.services.server import Server, status

VERSION = "3.6.0.Final"
DIST = Archive("debezium", f"io.debezium:debezium-server-dist:{VERSION}", "tar.gz", "debezium-server")
JAVA = Java("debezium", least=21)
ARTIFACTS = (JAVA, DIST)


class Debezium(Server):
    """A Debezium server that follows tables of PostgreSQL; what it has sent outlives a restart.

    Args:
        postgres: The server that it reads.
        kafka: The broker that it writes to; its topics are made before.
        tables: Regular expressions of the tables, with their schema.
        prefix: What the names of the topics begin with: `PREFIX.SCHEMA.TABLE`.
        schemas: Whether records carry their schema.
        settings: More properties of the connector.
        folder: See `Server`.
    """

    service = "debezium"
    start_seconds = 180.0

    def __init__(
        self,
        postgres: Postgres,
        kafka: Kafka,
        *,
        tables: str,
        prefix: str,
        schemas: bool = True,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.postgres = postgres
        self.kafka = kafka
        self.tables = tables
        self.prefix = prefix
        self.schemas = schemas
        self.more = dict(settings or {})

    def settings(self) -> dict[str, str]:
        """The properties of the server, its connector and its sink."""
        text = "org.apache.kafka.common.serialization.StringSerializer"
        source = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage.file.filename": str(self.folder / "offsets.dat"),
            "offset.flush.interval.ms": "500",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.postgres.port),
            "database.user": USER,
            "database.password": "-",
            "database.dbname": "postgres",
            "topic.prefix": self.prefix,
            "table.include.list": self.tables,
            "plugin.name": "pgoutput",
            "slot.name": f"slot_{self.prefix}",
            "publication.name": f"publication_{self.prefix}",
            "poll.interval.ms": "50",
            **self.more,
        }
        sink = {
            "bootstrap.servers": self.kafka.servers,
            "key.serializer": text,
            "value.serializer": text,
            "acks": "all",
        }
        return {
            "debezium.sink.type": "kafka",
            **{f"debezium.sink.kafka.producer.{name}": value for name, value in sink.items()},
            **{f"debezium.source.{name}": value for name, value in source.items()},
            **{f"debezium.format.{part}": "json" for part in ("key", "value")},
            **{f"debezium.format.{part}.schemas.enable": str(self.schemas).lower() for part in ("key", "value")},
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self.port),
            "quarkus.log.console.json": "false",
        }

    def prepare(self) -> None:
        (self.folder / "config").mkdir(exist_ok=True)
        text = "\n".join(f"{name}={value}" for name, value in self.settings().items())
        (self.folder / "config" / "application.properties").write_text(f"{text}\n", encoding="utf-8")

    def command(self) -> Sequence[str | Path]:
        home = DIST.find()
        [runner] = home.glob("debezium-server-*runner.jar")
        path = ":".join([str(runner), str(self.folder / "config"), f"{home}/lib/*"])
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        return [JAVA.find(), *quick, "-cp", path, "io.debezium.server.Main"]

    def ready(self) -> bool:
        return status(f"{self.endpoint}/q/health/ready") == 200

    def addresses(self) -> dict[str, str]:
        return {"servers": self.kafka.servers, "prefix": self.prefix, **self.postgres.addresses()}
