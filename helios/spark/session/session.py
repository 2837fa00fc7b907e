"""The Spark session: its jars and conf before it starts, its catalogs afterwards."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from helios.catalog.conf import hadoop_conf, java_properties, shown_spark_conf, spark_conf
from helios.catalog.connections import prepare
from helios.catalog.spec import Catalog
from helios.config import Config
from helios.environment import class_archive, jars, java
from helios.environment.memory import driver_heap
from helios.errors import EnvironmentProblem
from helios.model.values import SECRETS, is_secret
from helios.plan.nodes import Plan
from helios.spark.jvm.answers import take_at_once
from helios.spark.jvm.classes import classes
from helios.spark.jvm.death import NO_ANSWER, java_death, quiet_death
from helios.spark.jvm.types.hadoop import JavaPath
from helios.spark.jvm.types.spark import JavaSparkSession

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DRIVER_MEMORY = "spark.driver.memory"
CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
"""Whether pyspark tells the JVM of each column which line of Python made it, which takes ten calls; no message of ours
has that line."""
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

STATE = {
    # State outside the heap; a batch stores its changes, where Spark's own provider keeps two copies of all in memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The count of keys, which nothing here tells, costs a look-up before each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""How new checkpoints keep the state of streams: Spark notes the provider in the offset log, and keeps to that."""

REDACTION = "spark.redaction.regex"
OPTIONS_REDACTION = "spark.sql.redaction.options.regex"

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # ${env:X} in SQL text would be expanded by Spark, and could leak a secret into a plan.
    "spark.sql.variable.substitute": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own pattern knows no access-key, account.key, connection-string, sas-token, credential or Authorization.
    REDACTION: SECRETS,
    **STATE,
}
LOCAL_DEFAULTS = {
    # A UI nobody opens costs half a second of every start; [spark.conf] turns it on.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 200 state stores per batch is a cluster's number; a stream keeps the number it started with.
    "spark.sql.shuffle.partitions": "4",
}


def components_of(plans: Iterable[Plan]) -> tuple[str, ...]:
    """The jar components that plans need together."""
    return tuple(dict.fromkeys(c for plan in plans for c in plan.components))


def start(
    config: Config, components: Sequence[str], *, debug: bool = False, java_options: str | None = None
) -> SparkSession:
    """Starts a session, or returns the running one, with Iceberg's extensions and the jars of the components.

    Args:
        config: Master and conf.
        components: The jar components that the session needs.
        debug: Whether Spark's own log is shown.
        java_options: Options of the JVM; by default those that use the class archive, when there is one.

    Raises:
        EnvironmentProblem: Java or a jar is missing, or Spark does not start.
    """
    version, _ = jars.installed_spark()
    paths = jars.ensure(components, spark_version=version)
    if not debug:
        # pyspark writes every failed query's Java stack trace to stderr, as JSON.
        logging.getLogger("SQLQueryContextLogger").disabled = True
    found = java.find_java()
    os.environ.update(java.environment(found))
    level = LOG_LEVELS["debug" if debug else "quiet"]
    faster = class_archive.options(found, version) if java_options is None else java_options
    given = config.spark_conf.get(JAVA_OPTIONS, "")
    options = f'"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}" -Dhelios.log={level} {faster} {given}'
    conf = {CALL_SITES: str(debug).lower(), **_start_conf(config, paths, options.strip())}
    _choose_python(config, conf)
    spark_conf = _conf(config.master, conf)
    # The JVM is started with arguments that everybody on the machine can read; the rest goes to it by a socket.
    own = config.spark_conf.get(REDACTION)
    arguments = _conf(config.master, {key: value for key, value in conf.items() if not _hidden(key, value, own)})
    take_at_once()
    with tempfile.TemporaryFile() as log:
        try:
            if SparkContext._gateway is None:
                gateway = launch_gateway(arguments, None if debug else {"stderr": log})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway, conf=spark_conf)
            started = SparkSession.builder.config(conf=spark_conf).getOrCreate()
        except (RuntimeError, OSError, PySparkException, Py4JError) as error:
            log.seek(0)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            raise EnvironmentProblem(
                f"Spark {version} did not start on master {config.master}: {cause(error, lines)}",
                fix="run `helios doctor`; `--debug` shows Spark's own log.",
            ) from error
    if not debug:
        quiet_death()
    return started


def stop(session: SparkSession) -> None:
    """Stops a session; nothing where its JVM has ended, which the run tells."""
    try:
        session.stop()
    except NO_ANSWER:
        if java_death() is None:
            raise


def _start_conf(config: Config, paths: Iterable[Path], java_options: str) -> dict[str, str]:
    """The conf of a session that is started: the defaults, then the user's."""
    conf = {
        **DEFAULTS,
        # Driver and executors are one process here; Spark's 1 GB is meant for a driver alone.
        **({**LOCAL_DEFAULTS, DRIVER_MEMORY: driver_heap().conf} if _is_local(config) else {}),
        "spark.jars": ",".join(str(path) for path in paths),
        "spark.sql.extensions": EXTENSIONS,
        **config.spark_conf,
        JAVA_OPTIONS: java_options,
    }
    if (own := config.spark_conf.get(REDACTION)) is not None:
        conf[REDACTION] = f"{SECRETS}|{own}"  # Spark would take the user's instead
    return conf


def _choose_python(config: Config, conf: Mapping[str, str]) -> None:
    """Sets the executors' Python.

    pyspark reads the conf for it only under spark-submit. Executors in this process use this interpreter, whose
    packages the user's steps import; a cluster's machines may have no such path.
    """
    python = conf.get("spark.pyspark.python") or (sys.executable if _is_local(config) else None)
    if python is not None:
        os.environ.setdefault("PYSPARK_PYTHON", python)


def _is_local(config: Config) -> bool:
    return config.master.startswith("local")


def _conf(master: str, conf: Mapping[str, str]) -> SparkConf:
    return SparkConf().setMaster(master).setAppName("helios").setAll(list(conf.items()))


def _hidden(key: str, value: str, own: str | None) -> bool:
    """Whether a conf is a secret, by Helios's pattern or by the user's, which is one of Java's."""
    try:
        return key != REDACTION and (is_secret(key, value) or bool(own and re.search(own, key)))
    except re.error:
        return is_secret(key, value)


def cause(error: Exception, log: Sequence[str]) -> str:
    """The telling line of a failed start: the JVM's own, else the error's."""
    lines = [*log, *str(error).splitlines()]
    telling = [line for line in lines if "Exception" in line or "Error:" in line]
    return (telling or lines)[0].strip(" :")


LOG_LEVELS = {"quiet": "OFF", "debug": "WARN"}


def declare_catalogs(session: SparkSession, plans: Iterable[Plan]) -> None:
    """Sets the conf of the plans' catalogs, checkpoints and folders in a session: no secret is a process argument."""
    plans = list(plans)
    for catalog in {catalog.name: catalog for plan in plans for catalog in plan.catalogs}.values():
        prepare(catalog)
        declare_catalog(session, catalog)
    for plan in plans:
        folders = [read.place for read in plan.reads if read.place is not None]
        for location, storage in (*((at or "", None) for at in (plan.checkpoint, plan.former_checkpoint)), *folders):
            conf = hadoop_conf(location, plan.catalogs, storage)
            if conf:
                _renew_client(session, location, conf)
            for key, value in conf.items():
                session.conf.set(key, value)


_CHECKPOINT_CONF: dict[str, dict[str, str]] = {}
"""The conf that this process last used, by the root of a checkpoint's file system."""


def _renew_client(session: SparkSession, location: str, conf: dict[str, str]) -> None:
    """Closes Hadoop's client of a file system whose credentials have changed: it would go on with the old ones."""
    parts = urlsplit(location)
    root = f"{parts.scheme}://{parts.netloc}/"
    former = _CHECKPOINT_CONF.get(root)
    _CHECKPOINT_CONF[root] = conf
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
    """Has Spark hide the values of settings in its pages and logs, whatever their names."""
    names = [re.escape(key) for key in keys]

    def also(pattern: str) -> str:
        return "|".join((pattern, *(name for name in names if name not in pattern)))

    if not names:
        return
    session.conf.set(OPTIONS_REDACTION, also(session.conf.get(OPTIONS_REDACTION) or "(?i)url"))
    java_session: JavaSparkSession = session._jsparkSession
    context = java_session.sparkContext().conf()
    if context.getBoolean("spark.eventLog.enabled", False):
        # The event log has every job's settings, and redacts only those that are in the context's own conf too.
        context.set(REDACTION, also(context.get(REDACTION, SECRETS)))
        for key in keys:
            context.setIfMissing(key, "***")


def for_run(config: Config, plans: Sequence[Plan], given: SparkSession | None) -> SparkSession:
    """A session for a run from Python: a clone of the one given or active here, else one that is started.

    Each run has its own: Spark would go on with an earlier run's catalog of the same name.

    Args:
        config: Master and conf of a session that is started.
        plans: The pipelines of the run.
        given: The user's session; None for the active one.
    """
    active = given or SparkSession.getActiveSession()
    if active is not None:
        return clone(active, plans)
    started = start(config, components_of(plans)).newSession()
    declare_catalogs(started, plans)
    return started


def clone(session: SparkSession, plans: Sequence[Plan]) -> SparkSession:
    """A clone of the user's session, with the catalogs of the plans; the user's own is not altered.

    Raises:
        EnvironmentProblem: The session lacks Iceberg's extensions.
    """
    if EXTENSIONS not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise EnvironmentProblem(
            "the session that was passed in has no Iceberg extensions, which are fixed when a session starts.",
            fix=f'build it with .config("spark.sql.extensions", "{EXTENSIONS}") and Iceberg\'s runtime jar.',
        )
    cloned = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    declare_catalogs(cloned, plans)
    for key in ("spark.sql.session.timeZone", "spark.sql.variable.substitute"):
        cloned.conf.set(key, DEFAULTS[key])
    given = cloned.conf.getAll
    for key in (key for key in STATE if key not in given):
        cloned.conf.set(key, STATE[key])
    return cloned
