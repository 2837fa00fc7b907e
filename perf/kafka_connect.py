"""Kafka to Iceberg by Kafka Connect's Iceberg sink, beside Helios and the job of the docs on the same broker.

    taskset -c 1 python perf/kafka_connect.py --records 1000000 --rounds 3

One worker (`connect-standalone`, one task) writes the topic of `perf/kafka.py` into tables of the same catalog, with
the same columns: JsonConverter without schemas, InsertField for partition and offset. Every round it gets a new
connector and a new table, so that its JVM is warm as Spark's is. Told are rows per second from the first partition's
first offset to the last commit, which comes at most an interval of commits after the last record, and rows per second
of the processor that the contender's process took, in which that wait does not count. The broker's own share is in
neither of the latter. In every round the tables must hold the same rows.

The jars of the worker come from the Maven registry, into the cache of `tests/services`, at the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kafka import TopicRace  # noqa: E402

from helios.catalog.conf import spark_conf  # noqa: E402
from helios.spark.jvm.classes import classes  # noqa: E402
from tests.services.artifacts import Jars, Java, SparkJars  # noqa: E402
from tests.services.kafka import LOGS  # noqa: E402
from tests.services.kafka import Kafka as Broker  # noqa: E402
from tests.services.server import Server, status  # noqa: E402

ICEBERG, KAFKA, JETTY, JERSEY, PARQUET = "1.12.0", "4.1.0", "12.0.22", "3.1.10", "1.17.1"
_SERIES = {
    "org.apache.iceberg:iceberg-{}:"
    + ICEBERG: "api bundled-guava common core data kafka-connect kafka-connect-events parquet",
    "org.apache.kafka:{}:" + KAFKA: "connect-api connect-json connect-runtime connect-transforms kafka-clients",
    "org.apache.parquet:parquet-{}:" + PARQUET: "avro column common encoding format-structures hadoop jackson variant",
    "org.eclipse.jetty.ee10:jetty-ee10-{}:" + JETTY: "servlet servlets",
    "org.eclipse.jetty:jetty-{}:" + JETTY: "alpn-client client http io security server session util",
    "org.glassfish.jersey.containers:jersey-container-{}:" + JERSEY: "servlet servlet-core",
    "org.glassfish.jersey.core:jersey-{}:" + JERSEY: "client common server",
    "org.glassfish.hk2:{}:3.0.6": "hk2-api hk2-locator hk2-utils",
    "com.fasterxml.jackson.core:jackson-{}:2.19.0": "annotations core databind",
    "com.fasterxml.jackson.{}:2.19.0": (
        "datatype:jackson-datatype-jdk8 jakarta.rs:jackson-jakarta-rs-base jakarta.rs:jackson-jakarta-rs-json-provider "
        "module:jackson-module-blackbird module:jackson-module-jakarta-xmlbind-annotations"
    ),
}
_OTHERS = """com.github.ben-manes.caffeine:caffeine:3.2.4 com.github.luben:zstd-jni:1.5.6-10
    commons-pool:commons-pool:1.6 commons-codec:commons-codec:1.19.0 commons-io:commons-io:2.20.0
    io.airlift:aircompressor:2.0.3
    io.github.classgraph:classgraph:4.8.179 io.swagger.core.v3:swagger-annotations:2.2.25
    jakarta.activation:jakarta.activation-api:2.1.0 jakarta.annotation:jakarta.annotation-api:2.1.1
    jakarta.inject:jakarta.inject-api:2.0.1 jakarta.servlet:jakarta.servlet-api:6.0.0
    jakarta.validation:jakarta.validation-api:3.0.2 jakarta.ws.rs:jakarta.ws.rs-api:3.1.0
    jakarta.xml.bind:jakarta.xml.bind-api:3.0.1 javax.activation:javax.activation-api:1.2.0
    javax.annotation:javax.annotation-api:1.3.2 javax.xml.bind:jaxb-api:2.3.1 org.apache.avro:avro:1.12.2
    org.apache.commons:commons-compress:1.28.0 org.apache.commons:commons-lang3:3.12.0
    org.apache.httpcomponents.client5:httpclient5:5.6.4 org.apache.httpcomponents.core5:httpcore5:5.4.3
    org.apache.maven:maven-artifact:3.9.6 org.bitbucket.b_c:jose4j:0.9.6 org.codehaus.plexus:plexus-utils:3.5.1
    org.glassfish.hk2.external:aopalliance-repackaged:3.0.6 org.glassfish.hk2:osgi-resource-locator:1.0.3
    org.glassfish.jersey.inject:jersey-hk2:3.1.10 org.javassist:javassist:3.30.2-GA org.lz4:lz4-java:1.8.0
    org.locationtech.jts:jts-core:1.20.0 org.roaringbitmap:RoaringBitmap:1.6.23 org.threeten:threeten-extra:1.7.1
    org.xerial.snappy:snappy-java:1.1.10.7"""
JARS = Jars(
    "kafka-connect",
    sets=((*[row.format(name) for row, names in _SERIES.items() for name in names.split()], *_OTHERS.split()),),
    components=("sqlite",),
)
OF_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "slf4j-api")
"""What Iceberg's files and the logs need beside them, as pyspark has it."""

CONTENDERS = ("connect", "helios", "docs")
CONTROL = "control-iceberg"
MILLIS = LOGS.replace("%d", "%d{UNIX_MILLIS}")
WAIT = 900.0


class Worker(Server):
    """A standalone worker of Kafka Connect.

    Args:
        broker: The broker that it reads.
        folder: See `Server`.
    """

    service = "kafka-connect"
    start_seconds = 180.0

    def __init__(self, broker: Broker, folder: Path) -> None:
        super().__init__(folder)
        self._broker = broker

    def command(self) -> Sequence[str | Path]:
        spark = SparkJars(self.service).find()
        jars = [*JARS.find(), *(next(iter(spark.glob(f"{name}-[0-9]*.jar"))) for name in OF_SPARK)]
        logs = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        java, main = Java(self.service).find(), "org.apache.kafka.connect.cli.ConnectStandalone"
        return [java, "-Xmx4g", logs, "-cp", ":".join(map(str, jars)), main, self.folder / "worker.properties"]

    def prepare(self) -> None:
        settings = {
            "bootstrap.servers": self._broker.servers,
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            # Behind the last record a task waits so long before it looks whether it is to commit: 60 s by default.
            "offset.flush.interval.ms": "1000",
        }
        text = "\n".join(f"{key}={value}" for key, value in settings.items())
        (self.folder / "worker.properties").write_text(f"{text}\n", encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(MILLIS, encoding="utf-8")

    def ready(self) -> bool:
        return status(f"{self.endpoint}/connectors") == 200

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request to the worker's REST interface, and returns its answer."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.endpoint}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")

    def began(self, connector: str) -> float:
        """When the consumer of a connector took the first offset of a partition."""
        lines = (line for line in self.log.splitlines() if "Resetting offset for partition" in line)
        return min(int(line.split()[0]) for line in lines if f"groupId=connect-{connector}]" in line) / 1000


class ConnectRace(TopicRace):
    """The topic, and one more contender.

    Args:
        folder: Where broker, worker and tables have their files.
        records: How many records the topic gets.
        broker: The broker, which runs.
        interval: Seconds between two commits of the connector.
    """

    def __init__(self, folder: Path, records: int, broker: Broker, interval: float) -> None:
        super().__init__(folder, records, 1, 3, broker)
        self.interval = interval
        self._admin("createTopics", classes().org.apache.kafka.clients.admin.NewTopic(CONTROL, 1, 1))

    def settings(self, name: str) -> dict[str, str]:
        """The settings of a connector, which writes the table of its name."""
        own = spark_conf(self.catalog)
        prefix = "spark.sql.catalog.local."
        catalog = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
        insert = {"partition": "partition", "offset": "offset"}
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "1",
            "topics": self.topic,
            "iceberg.tables": f"perf.{name}",
            "iceberg.catalog": "local",
            **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
            "iceberg.control.topic": CONTROL,
            "iceberg.control.commit.interval-ms": str(round(self.interval * 1000)),
            "transforms": "place",
            "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            **{f"transforms.place.{key}.field": value for key, value in insert.items()},
        }

    def connect(self, worker: Worker, target: str) -> float:
        """Writes the topic by a connector, and returns the seconds to the last commit."""
        worker.ask("POST", "/connectors", {"name": target, "config": self.settings(target)})
        until = time.monotonic() + WAIT
        while True:
            time.sleep(1)
            shots = self.catalog.load(f"perf.{target}").snapshots()
            if shots and int(shots[-1].summary["total-records"]) >= self.rows:
                break
            states = [task["state"] for task in worker.ask("GET", f"/connectors/{target}/status")["tasks"]]
            if "FAILED" in states or time.monotonic() > until:
                raise RuntimeError(f"the connector is {states}; the end of its log:\n{worker.log[-6000:]}")
        last = shots[-1].timestamp.timestamp()
        worker.ask("DELETE", f"/connectors/{target}")
        return float(last - worker.began(target))


def cpu(process: int) -> float:
    """The seconds of the processor that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def round_of(
    track: ConnectRace, worker: Worker, spark: int, expected: tuple[int, int], number: int
) -> dict[str, tuple[float, float]]:
    """By contender, the rows per second of a round, and those per second of the processor."""
    found = {}
    first = number % len(CONTENDERS)
    for name in (*CONTENDERS[first:], *CONTENDERS[:first]):
        target = f"{name}_{uuid.uuid4().hex[:8]}"
        track.create(target)
        process = worker.pid if name == "connect" else spark
        before = cpu(process), time.process_time()
        if name == "connect":
            seconds = track.connect(worker, target)
            taken = cpu(process) - before[0]
        else:
            seconds, _ = track.timed(name, target)
            taken = cpu(process) - before[0] + time.process_time() - before[1]
        if track.content(target) != expected:
            raise RuntimeError(f"{name} has written {track.content(target)}, and not {expected}")
        track.drop(target)
        found[name] = track.rows / seconds, track.rows / taken
    return found


def told(rates: Mapping[str, tuple[float, float]]) -> str:
    return ", ".join(
        f"{name} {whole / 1e3:.1f} k rows/s ({taken / 1e3:.1f} k per second of the processor)"
        for name, (whole, taken) in rates.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two commits of the connector")
    given = parser.parse_args()
    JARS.install(print)
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made, Broker(Path(made) / "broker") as broker:
        track = ConnectRace(Path(made), given.records, broker, given.interval)
        spark = int(track._jvm.java.lang.ProcessHandle.current().pid())
        track.prepare()
        expected = track.expected()
        rounds = []
        with Worker(broker, Path(made) / "worker") as worker:
            for number in range(1, given.warm_up + given.rounds + 1):
                rounds.append(round_of(track, worker, spark, expected, number))
                print(f"round {number - given.warm_up}: {told(rounds[-1])}", flush=True)
    counted = rounds[given.warm_up :]
    medians = {
        name: (statistics.median(one[name][0] for one in counted), statistics.median(one[name][1] for one in counted))
        for name in CONTENDERS
    }
    print(f"median: {told(medians)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
