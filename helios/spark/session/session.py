"""Starts and clones Spark sessions, connects to starting ones, and sets the conf of catalogs in sessions."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import IO
from urllib.parse import urlsplit

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from helios.catalog.conf import hadoop_conf, java_properties, shown_spark_conf, spark_conf
from helios.catalog.connections import prepare
from helios.catalog.spec import Catalog
from helios.config import Config
from helios.errors import EnvironmentProblem
from helios.model.values import SECRETS
from helios.plan.nodes import Plan
from helios.spark.jvm.answers import acknowledge_at_once
from helios.spark.jvm.classes import classes
from helios.spark.jvm.death import NO_ANSWER, hide_death_messages, java_death
from helios.spark.jvm.types.hadoop import JavaPath
from helios.spark.jvm.types.spark import JavaSparkSession
from helios.spark.jvm.version import spark_version
from helios.spark.session.launch import (
    APP,
    DEFAULTS,
    EXTENSIONS,
    OPTIONS_REDACTION,
    REDACTION,
    STATE_STORE_CONF,
    Jvm,
    arguments,
    launch,
)
from helios.spark.session.ml import register_when_imported


def components_of(plans: Iterable[Plan]) -> tuple[str, ...]:
    """The jar components that plans need together."""
    return tuple(dict.fromkeys(component for plan in plans for component in plan.components))


def start(
    config: Config, components: Sequence[str], *, debug: bool = False, java_options: str | None = None
) -> SparkSession:
    """Starts a session with Iceberg's extensions and the jars of the components, or returns the running session.

    Args:
        debug: Whether Spark's own log is shown.
        java_options: Options of the JVM; by default the options that use the class archive, if there is one.

    Raises:
        EnvironmentProblem: Java or a jar is missing, or Spark does not start.
    """
    running = SparkContext._gateway is not None
    return connect(launch(config, components, debug=debug, java_options=java_options, running=running))


def connect(jvm: Jvm) -> SparkSession:
    """The session of a running or starting JVM; raises `EnvironmentProblem` if Spark does not start."""
    if jvm.log is not None:
        # pyspark writes the Java stack trace of every failed query to stderr, as JSON.
        logging.getLogger("SQLQueryContextLogger").disabled = True
    conf = _conf(jvm.config.master, jvm.conf)
    acknowledge_at_once()
    with jvm.log or nullcontext():
        try:
            if SparkContext._gateway is None:
                SparkContext._ensure_initialized(gateway=gateway(jvm), conf=conf)
            started = SparkSession.builder.config(conf=conf).getOrCreate()
        except (RuntimeError, OSError, PySparkException, Py4JError) as error:
            reason = failure_reason(error, _lines(jvm.log))
            raise EnvironmentProblem(
                f"Spark {jvm.version} did not start on master {jvm.config.master}: {reason}",
                fix="give this machine's name an address, as in /etc/hosts, or set SPARK_LOCAL_IP."
                if "UnknownHostException" in reason
                else "run `helios doctor`; `--debug` shows Spark's own log.",
            ) from error
    if jvm.slim:
        register_when_imported()
    if jvm.log is not None:
        hide_death_messages()
    return started


def gateway(jvm: Jvm) -> JavaGateway:
    """Connects pyspark's gateway to a JVM, and starts a JVM if none is starting."""
    if jvm.starting is None:
        public = SparkConf().setAll(list(arguments(jvm.config, jvm.conf).items()))
        return launch_gateway(public, {"stderr": jvm.log} if jvm.log else None)  # type: ignore[no-untyped-call]
    port, secret = jvm.starting.connection()
    # pyspark connects to the JVM that these variables describe.
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        connected = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            del os.environ[name]
    connected.proc = jvm.starting.process
    return connected


def _lines(log: IO[bytes] | None) -> list[str]:
    """The lines that a JVM has written into a log, without empty lines."""
    if log is None:
        return []
    log.seek(0)
    return [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]


def stop(session: SparkSession) -> None:
    """Stops a session. Ignores that the JVM has ended, because the run reports it."""
    try:
        session.stop()
    except NO_ANSWER:
        if java_death() is None:
            raise


def _conf(master: str, conf: Mapping[str, str]) -> SparkConf:
    return SparkConf().setMaster(master).setAppName(APP).setAll(list(conf.items()))


def failure_reason(error: Exception, log: Sequence[str]) -> str:
    """The line of the JVM's output, or else of the error's text, that explains a failed start."""
    lines = [*log, *str(error).splitlines()]
    errors = [line for line in lines if "Exception" in line or "Error:" in line]
    if errors and "ExceptionInInitializerError" in errors[0]:  # this error does not name its cause
        causes = [line for line in errors if line.startswith("Caused by: ")]
        errors = causes[-1:] or errors
    return (errors or lines or [type(error).__name__])[0].removeprefix("Caused by: ").strip(" :")


def declare_catalogs(session: SparkSession, plans: Iterable[Plan]) -> None:
    """Sets the conf of the plans' catalogs, checkpoints and folders in a running session.

    The conf may contain secrets. As arguments of the JVM, they would be visible in a list of processes.
    """
    plans = list(plans)
    for catalog in {catalog.name: catalog for plan in plans for catalog in plan.catalogs}.values():
        prepare(catalog)
        declare_catalog(session, catalog)
    for plan in plans:
        folders = [read.store_folder for read in plan.reads if read.store_folder is not None]
        checkpoints = [(location or "", None) for location in (plan.checkpoint, plan.former_checkpoint)]
        for location, storage in (*checkpoints, *folders):
            conf = hadoop_conf(location, plan.catalogs, storage)
            if conf:
                _close_outdated_client(session, location, conf)
            for key, value in conf.items():
                session.conf.set(key, value)
    schemes = {urlsplit(plan.checkpoint).scheme for plan in plans if plan.checkpoint}
    if schemes == {"file"} and session.conf.get(CHECKPOINT_FILES, None) is None:
        session.conf.set(CHECKPOINT_FILES, spark_version(session).checkpoint_class)


CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting of the class with which Spark writes a checkpoint. With Spark's default class, Hadoop starts eight
processes (`readlink`) for each local file. `SparkVersion.checkpoint_class` does the same renames without processes."""

_HADOOP_CONF: dict[str, dict[str, str]] = {}
"""The conf that this process last used for a file system, by the root of the file system."""


def _close_outdated_client(session: SparkSession, location: str, conf: dict[str, str]) -> None:
    """Closes Hadoop's client of a file system if the conf has changed, since the client has the old credentials."""
    parts = urlsplit(location)
    root = f"{parts.scheme}://{parts.netloc}/"
    former = _HADOOP_CONF.get(root)
    _HADOOP_CONF[root] = conf
    if former is not None and former != conf:
        path: JavaPath = classes().org.apache.hadoop.fs.Path(root)
        java_session: JavaSparkSession = session._jsparkSession
        path.getFileSystem(java_session.sessionState().newHadoopConf()).close()


def declare_catalog(session: SparkSession, catalog: Catalog) -> None:
    """Sets the conf of one catalog in a running session."""
    conf, shown = spark_conf(catalog), shown_spark_conf(catalog)
    _redact(session, [key for key in conf if conf[key] != shown[key]])
    for key, value in conf.items():
        session.conf.set(key, value)
    jvm = classes()
    for key, value in java_properties(catalog).items():
        jvm.java.lang.System.setProperty(key, value)


def _redact(session: SparkSession, keys: Sequence[str]) -> None:
    """Makes Spark hide the values of these settings in its UI and logs."""
    names = [re.escape(key) for key in keys]

    def extended(pattern: str) -> str:
        return "|".join((pattern, *(name for name in names if name not in pattern)))

    if not names:
        return
    session.conf.set(OPTIONS_REDACTION, extended(session.conf.get(OPTIONS_REDACTION) or "(?i)url"))
    java_session: JavaSparkSession = session._jsparkSession
    context_conf = java_session.sparkContext().conf()
    if context_conf.getBoolean("spark.eventLog.enabled", False):
        # The event log has the settings of every job, but hides a value only if the context's conf has the key, too.
        context_conf.set(REDACTION, extended(context_conf.get(REDACTION, SECRETS)))
        for key in keys:
            context_conf.setIfMissing(key, "***")


def for_run(config: Config, plans: Sequence[Plan], given: SparkSession | None) -> SparkSession:
    """A session for a run from Python: a clone of the given session, else of the active session, else a new session.

    Each run gets its own session, because a session keeps an earlier run's catalog of the same name.

    Args:
        config: The master and the conf, if a new session is started.
        given: The user's session; None if the user passed none.
    """
    active = given or SparkSession.getActiveSession()
    if active is not None:
        return clone(active, plans)
    started = start(config, components_of(plans)).newSession()
    declare_catalogs(started, plans)
    return started


def clone(session: SparkSession, plans: Sequence[Plan]) -> SparkSession:
    """A clone of the user's session with the catalogs of the plans. The user's session stays as it is.

    Raises:
        EnvironmentProblem: The session lacks Iceberg's extensions.
    """
    if EXTENSIONS not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise EnvironmentProblem(
            "the Spark session has no Iceberg extensions, which can only be set before it starts.",
            fix=f'build it with .config("spark.sql.extensions", "{EXTENSIONS}") and Iceberg\'s runtime jar.',
        )
    cloned = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    declare_catalogs(cloned, plans)
    for key in ("spark.sql.session.timeZone", "spark.sql.variable.substitute"):
        cloned.conf.set(key, DEFAULTS[key])
    conf = cloned._jsparkSession.sessionState().conf()
    for key, value in STATE_STORE_CONF.items():
        if not conf.contains(key):
            cloned.conf.set(key, value)
    return cloned
