"""The jars that are tested together, as Maven coordinates for each Spark version and component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from helios.errors import EnvironmentProblem, near_miss

_AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
_HTTP = ("org.apache.httpcomponents:httpclient:4.5.14", "org.apache.httpcomponents:httpcore:4.4.16")

# Only tested combinations are listed. A component that is not listed for a Spark version is refused with an error.
COMPONENTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "4.0": {
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
        "sqlite": ("org.xerial:sqlite-jdbc:3.47.1.0",),
        "avro": ("org.apache.spark:spark-avro_2.13:4.0.1",),
    },
    "4.1": {
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
        "sqlite": ("org.xerial:sqlite-jdbc:3.47.1.0",),
        "aws": (_AWS,),
        "gcp": ("org.apache.iceberg:iceberg-gcp-bundle:1.11.0",),
        "azure": ("org.apache.iceberg:iceberg-azure-bundle:1.10.0",),
        # The token provider 4.1 is not in every registry. Version 4.0.0 works with 4.1.3, tested with a real broker.
        "kafka": (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.1",
            "org.apache.commons:commons-pool2:2.12.1",
        ),
        # Version 4.1.3 is not in every registry. Version 4.1.1 works with Spark 4.1.4.
        "avro": ("org.apache.spark:spark-avro_2.13:4.1.1",),
        # For checkpoints on s3a://. Iceberg's bundle has the AWS SDK, so the SDK's own bundle of 640 MB is not needed.
        "s3a": (
            _AWS,
            "org.apache.hadoop:hadoop-aws:3.4.2",
            "software.amazon.awssdk:s3-transfer-manager:2.54.17",
            "software.amazon.awssdk:apache-client:2.54.17",
            *_HTTP,
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.2.1",
        ),
        # For checkpoints on abfss:// and gs://.
        "abfs": ("org.apache.hadoop:hadoop-azure:3.4.2", "org.wildfly.openssl:wildfly-openssl:2.1.4.Final", *_HTTP),
        "gcs": ("com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded",),
    },
}
NEWEST = max(COMPONENTS)


class Coordinate(NamedTuple):
    """The parts of a Maven coordinate."""

    group: str
    artifact: str
    version: str
    classifier: str | None = None

    @property
    def file_name(self) -> str:
        """The jar's file name in the cache. It begins with the group: two groups may have an artifact of the same name.

        Examples:
            >>> parse("a.b:c:1.0:shaded").file_name
            'a.b_c-1.0-shaded.jar'
        """
        ending = f"-{self.classifier}" if self.classifier else ""
        return f"{self.group}_{self.artifact}-{self.version}{ending}.jar"


def parse(text: str) -> Coordinate:
    """Parses `group:artifact:version[:classifier]`.

    Examples:
        >>> parse("org.xerial:sqlite-jdbc:3.47.1.0").artifact
        'sqlite-jdbc'

    Raises:
        ValueError: The text does not have three or four parts.
    """
    parts = text.split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise ValueError(f"{text!r} is not group:artifact:version[:classifier]")
    return Coordinate(*parts)


def minor(spark_version: str) -> str:
    """Spark's major.minor version, which selects the jars.

    Examples:
        >>> minor("4.1.4"), minor("4.1"), minor("4.2.0.dev3")
        ('4.1', '4.1', '4.2')
    """
    return ".".join(spark_version.split(".")[:2])


def pip_command(spark_minor: str = NEWEST) -> str:
    """The command that installs the newest Spark of a minor version.

    Examples:
        >>> pip_command("4.1")
        "pip install 'pyspark>=4.1,<4.2'"
    """
    major_number, _, minor_number = spark_minor.partition(".")
    return f"pip install 'pyspark>={spark_minor},<{major_number}.{int(minor_number) + 1}'"


def coordinates(spark_version: str, components: Iterable[str]) -> tuple[str, ...]:
    """The coordinates of the components' jars, each once, in the order of the components.

    Args:
        spark_version: A minor version such as "4.1", or a full version such as "4.1.4".

    Examples:
        >>> coordinates("4.1", ["sqlite"])
        ('org.xerial:sqlite-jdbc:3.47.1.0',)

    Raises:
        EnvironmentProblem: No jars are known for this Spark, or for a component on it.
    """
    spark_minor = minor(spark_version)
    if spark_minor not in COMPONENTS:
        raise EnvironmentProblem(
            f"Helios knows no Iceberg jars for Spark {spark_version}; supported: {', '.join(sorted(COMPONENTS))}.",
            fix=f"{pip_command()}.",
        )
    known = COMPONENTS[spark_minor]
    pinned: dict[str, None] = {}
    for component in components:
        if component not in known:
            raise _unknown(component, spark_minor)
        pinned.update(dict.fromkeys(known[component]))
    return tuple(pinned)


def _unknown(component: str, spark_minor: str) -> EnvironmentProblem:
    others = [version for version in sorted(COMPONENTS) if component in COMPONENTS[version]]
    if others:
        return EnvironmentProblem(
            f"The jars of {component!r} are known for Spark {', '.join(others)}, not for Spark {spark_minor}.",
            fix=f"{pip_command(others[-1])}.",
        )
    return EnvironmentProblem(
        f"No jars are known by the name {component!r}. {near_miss(component, COMPONENTS[spark_minor])}"
    )
