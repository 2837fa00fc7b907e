"""Every check in an environment of its own: `nox -l` lists them, `nox -s unit` runs one."""

from __future__ import annotations

import nox

SPARKS = ["4.0.5", "4.1.4"]
LOCK = "requirements-dev.lock"
NOT_SLOW = "not slow"
CDC = [f"tests/kafka/test_{name}.py" for name in ("change_log", "debezium", "postgres")]

nox.options.sessions = ["lint", "types", "unit", "docs"]
nox.options.error_on_external_run = True


def _install(session: nox.Session, spark: str | None = None) -> None:
    session.install("-r", LOCK)
    session.install("--no-deps", "-e", ".")
    if spark is not None:
        session.install(f"pyspark=={spark}")


def _tests(session: nox.Session, marks: str, *, spark: str | None = None, cover: bool = False) -> None:
    _install(session, spark)
    options = ["--cov", "--cov-report=term", "--cov-fail-under=90"] if cover else []
    session.run("pytest", "-m", marks, *options, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and format."""
    session.install("-c", LOCK, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    _install(session)
    session.run("mypy")


@nox.session
def unit(session: nox.Session) -> None:
    """The tests that need no JVM."""
    _tests(session, f"unit and {NOT_SLOW}")


@nox.session(python=["3.11", "3.12", "3.13"])
def pythons(session: nox.Session) -> None:
    """The tests that need no JVM, on each Python that the package names."""
    _tests(session, f"unit and {NOT_SLOW}")


@nox.session
def streaming(session: nox.Session) -> None:
    """The tests that run Spark from source to table."""
    _tests(session, f"streaming and {NOT_SLOW}")


@nox.session
def integration(session: nox.Session) -> None:
    """The tests that need catalogs and files."""
    _tests(session, f"integration and {NOT_SLOW}")


@nox.session
def coverage(session: nox.Session) -> None:
    """All tests but the slow ones, with the bound on coverage."""
    _tests(session, NOT_SLOW, cover=True)


def _matrix(session: nox.Session, chosen: str, *servers: str) -> None:
    _install(session)
    # A server that cannot be had is a named skip.
    session.run("python", "-m", "tests.services", "install", *servers, success_codes=[0, 1])
    session.run("pytest", "tests/matrix", "-k", chosen, *session.posargs)


@nox.session
def catalogs(session: nox.Session) -> None:
    """Every promise on every catalog, each on the storage that is closest to it."""
    _matrix(session, "closest", "rest", "moto", "hive", "minio", "nessie")


@nox.session
def minio(session: nox.Session) -> None:
    """Every promise on every catalog over S3."""
    _matrix(session, "minio", "minio", "rest", "hive", "nessie")


@nox.session
def azurite(session: nox.Session) -> None:
    """Every promise over ADLS."""
    _matrix(session, "azurite", "azurite", "rest")


@nox.session
def gcs(session: nox.Session) -> None:
    """Every promise over Google Cloud Storage."""
    _matrix(session, "gcs", "gcs", "rest")


@nox.session
def cluster(session: nox.Session) -> None:
    """Pipelines on a Spark standalone cluster, with workers and drivers killed."""
    _install(session)
    session.run("python", "-m", "tests.services", "install", "cluster", "minio", "rest", success_codes=[0, 1])
    session.run("pytest", "tests/cluster", *session.posargs)


@nox.session
def kafka(session: nox.Session) -> None:
    """Topics of a real broker: values, registries, kills, brokers that are away."""
    _install(session)
    session.run("python", "-m", "tests.services", "install", "kafka", "rest", "nessie", success_codes=[0, 1])
    session.run("pytest", "tests/kafka", *(f"--ignore={file}" for file in CDC), *session.posargs)


@nox.session
def cdc(session: nox.Session) -> None:
    """Changes of databases, from a real broker, and from PostgreSQL by Debezium."""
    _install(session)
    session.run("python", "-m", "tests.services", "install", "kafka", "postgres", "debezium", success_codes=[0, 1])
    session.run("pytest", *CDC, *session.posargs)


@nox.session
@nox.parametrize("pyspark", SPARKS)
def spark(session: nox.Session, pyspark: str) -> None:
    """Unit and streaming tests on one version of Spark."""
    _tests(session, f"(unit or streaming) and {NOT_SLOW}", spark=pyspark)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, strict."""
    _install(session)
    session.run("mkdocs", "build", "--strict")
