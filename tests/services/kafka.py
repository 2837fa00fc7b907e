"""Apache Kafka: one node that is broker and controller (KRaft); topics and their records outlive a restart."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.artifacts import Jars, Java, SparkJars
from tests.services.rest import QUICK_JVM
from tests.services.server import Port, Server, StartFailed, Unavailable, listens

KAFKA = "4.1.0"
_MODULES = (
    "clients", "coordinator-common", "group-coordinator", "group-coordinator-api", "metadata", "raft", "server",
    "server-common", "share-coordinator", "storage", "storage-api", "tools-api", "transaction-coordinator",
)  # fmt: skip
JARS = Jars(
    "kafka",
    sets=(
        (
            f"org.apache.kafka:kafka_2.13:{KAFKA}",
            *(f"org.apache.kafka:kafka-{name}:{KAFKA}" for name in _MODULES),
            "com.dynatrace.hash4j:hash4j:0.22.0",
            "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0",
            "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.19.0",
            "com.github.ben-manes.caffeine:caffeine:3.2.0",
            "com.google.re2j:re2j:1.8",
            "com.typesafe.scala-logging:scala-logging_2.13:3.9.5",
            "com.yammer.metrics:metrics-core:2.2.0",
            "commons-validator:commons-validator:1.9.0",
            "net.sf.jopt-simple:jopt-simple:5.0.4",
            "net.sourceforge.argparse4j:argparse4j:0.7.0",
            "org.bitbucket.b_c:jose4j:0.9.6",
            "org.hdrhistogram:HdrHistogram:2.2.2",
            "org.pcollections:pcollections:4.0.2",
        ),
    ),
)
SPARK = SparkJars("kafka")  # Jackson, Scala, log4j and the codecs
JAVA = Java("kafka")
ARTIFACTS = (JAVA, SPARK, JARS)

LOGS = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
"""


class Kafka(Server):
    """A Kafka broker on loopback, without authentication at one port, and with SASL over TLS at another.

    Attributes:
        user: The user of the secure port.
        password: Its password, for SCRAM-SHA-512 and PLAIN.
    """

    service = "kafka"
    user = "helios"
    password = "helios-kafka-password"

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._secure, self._controller = Port(), Port()

    @property
    def servers(self) -> str:
        """The address of the port without authentication."""
        return f"127.0.0.1:{self.port}"

    @property
    def secure_servers(self) -> str:
        """The address of the port with SASL over TLS."""
        return f"127.0.0.1:{self._secure.number}"

    @property
    def certificate(self) -> Path:
        """The certificate that clients of the secure port trust."""
        return self.folder / "certificate.pem"

    def command(self) -> Sequence[str | Path]:
        return [*self._java(), "kafka.Kafka", self._properties]

    def _java(self) -> list[str | Path]:
        java, spark, own = JAVA.find(), SPARK.find(), JARS.find()
        logs = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return [java, *QUICK_JVM, "-Xmx512m", logs, "-cp", ":".join([*map(str, own), f"{spark}/*"])]

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def settings(self) -> dict[str, str]:
        """The broker's settings."""
        listeners = f"PLAINTEXT://{self.servers},SASL_SSL://{self.secure_servers}"
        controller = f"127.0.0.1:{self._controller.number}"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        single = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{plain} required user_{self.user}="{self.password}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "keystore.pem"),
            "log.dirs": str(self.folder / "data"),
            **{f"{topic}.replication.factor": "1" for topic in single},
            **{f"{topic}.min.isr": "1" for topic in single[1:]},
            **{f"{topic}.num.partitions": "1" for topic in single},
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # What retention has outlived is gone at once, and not five minutes later.
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "300",
            "file.delete.delay.ms": "100",
            "num.network.threads": "2",
            "num.io.threads": "2",
        }

    def prepare(self) -> None:
        text = "\n".join(f"{key}={value}" for key, value in self.settings().items())
        self._properties.write_text(f"{text}\n", encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(LOGS, encoding="utf-8")
        if not self.certificate.exists():
            self._make_certificate()
        if not (self.folder / "data" / "meta.properties").exists():
            scram = f"SCRAM-SHA-512=[name={self.user},password={self.password}]"
            formatting = ["format", "-t", "aGVsaW9zLXRlc3RzLWthZg", "-c", self._properties, "--add-scram", scram]
            self._run([*self._java(), "kafka.tools.StorageTool", *formatting])

    def _make_certificate(self) -> None:
        if shutil.which("openssl") is None:
            raise Unavailable(self.service, "its certificate is made with `openssl`, which is not on PATH")
        key = self.folder / "key.pem"
        made = ["-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.certificate, "-days", "30"]
        self._run(
            ["openssl", "req", "-x509", *made, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        )
        (self.folder / "keystore.pem").write_text(key.read_text() + self.certificate.read_text())

    def _run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise StartFailed(f"`{command[0]} ...` of {self.service} failed: {done.stdout[-800:]}{done.stderr[-800:]}")

    def ready(self) -> bool:
        return "Kafka Server started" in self.log and answers(self.port) and listens(self._secure.number)

    def client(self) -> Mapping[str, str]:
        """The settings of a client of the secure port."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "bootstrap.servers": self.secure_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{login} required username="{self.user}" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def addresses(self) -> dict[str, str]:
        return {"servers": self.servers, "secure_servers": self.secure_servers, "certificate": str(self.certificate)}

    def close(self) -> None:
        super().close()
        self._secure.release()
        self._controller.release()


def answers(port: int) -> bool:
    """Whether a broker answers the protocol's first request, ApiVersions (key 18) of version 0."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (7, 0)
