"""The Spark session: jars and conf before it starts, catalogs after."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from helios.catalog.conf import checkpoint_conf, java_properties, shown_spark_conf, spark_conf
from helios.catalog.connections import prepare
from helios.catalog.spec import Catalog
from helios.config import Config
from helios.environment import class_archive, jars, java
from helios.errors import EnvironmentProblem
from helios.model.values import SECRETS, is_secret
from helios.plan.nodes import Plan
from helios.spark.jvm.classes import classes

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

REDACTION = "spark.redaction.regex"
OPTIONS_REDACTION = "spark.sql.redaction.options.regex"

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # ${env:X} in SQL text would be expanded by Spark, and could leak a secret into a plan.
    "spark.sql.variable.substitute": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own pattern knows no access-key, account.key, connection-string, sas-token, credential or Authorization.
    REDACTION: SECRETS,
}
LOCAL_DEFAULTS = {
    # A UI nobody opens costs half a second of every start; [spark.conf] turns it on.
    "spark.ui.enabled": "false",
    # Driver and executors are one process here, for which Spark's 1 GB is meant for a driver alone.
    "spark.driver.memory": "2g",
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
    local = config.master.startswith("local")
    conf = {
        **DEFAULTS,
        **(LOCAL_DEFAULTS if local else {}),
        "spark.jars": ",".join(str(p) for p in paths),
        "spark.sql.extensions": EXTENSIONS,
        **config.spark_conf,
        JAVA_OPTIONS: options.strip(),
    }
    if (own := config.spark_conf.get(REDACTION)) is not None:
        conf[REDACTION] = f"{SECRETS}|{own}"  # Spark would take it instead
    # pyspark reads the conf for executors' Python only under spark-submit. Where they are this process, they are this
    # interpreter, whose packages the user's steps import; a cluster's machines may have no such path.
    python = conf.get("spark.pyspark.python") or (sys.executable if local else None)
    if python is not None:
        os.environ.setdefault("PYSPARK_PYTHON", python)
    spark_conf = _conf(config.master, conf)
    # The JVM is started with arguments that everybody on the machine can read; the rest goes to it by a socket.
    arguments = _conf(config.master, {key: value for key, value in conf.items() if not _hidden(key, value, own)})
    with tempfile.TemporaryFile() as log:
        try:
            if SparkContext._gateway is None:
                SparkContext._ensure_initialized(gateway=_launch(arguments, None if debug else log), conf=spark_conf)
            return SparkSession.builder.config(conf=spark_conf).getOrCreate()
        except (RuntimeError, OSError, PySparkException, Py4JError) as error:
            log.seek(0)
            said = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            raise EnvironmentProblem(
                f"Spark {version} did not start on master {config.master}: {cause(error, said)}",
                fix="run `helios doctor`; `--debug` shows Spark's own log.",
            ) from error


def _conf(master: str, conf: Mapping[str, str]) -> SparkConf:
    return SparkConf().setMaster(master).setAppName("helios").setAll(list(conf.items()))


def _hidden(key: str, value: str, own: str | None) -> bool:
    """Whether a conf is a secret, by Helios's pattern or by the user's, which is one of Java's."""
    try:
        return key != REDACTION and (is_secret(key, value) or bool(own and re.search(own, key)))
    except re.error:
        return is_secret(key, value)


def _launch(conf: SparkConf, log: IO[bytes] | None) -> Any:
    """Starts the JVM with its own chatter kept out of the user's terminal, unless there is no log for it."""
    launch: Any = launch_gateway
    return launch(conf, {"stderr": log} if log else None)


def cause(error: Exception, said: Sequence[str]) -> str:
    """The telling line of a failed start: the JVM's own, else the error's."""
    lines = [*said, *str(error).splitlines()]
    telling = [line for line in lines if "Exception" in line or "Error:" in line]
    return (telling or lines)[0].strip(" :")


LOG_LEVELS = {"quiet": "OFF", "debug": "WARN"}


def declare_catalogs(session: SparkSession, plans: Iterable[Plan]) -> None:
    """Sets the conf of the plans' catalogs and checkpoints at run time: no secret is ever a process argument."""
    plans = list(plans)
    for catalog in {catalog.name: catalog for plan in plans for catalog in plan.catalogs}.values():
        prepare(catalog)
        declare(session, catalog)
    for plan in plans:
        for location in (plan.checkpoint, plan.former_checkpoint):
            conf = checkpoint_conf(location or "", plan.catalogs)
            if location and conf:
                _renew(session, location, conf)
            for key, value in conf.items():
                session.conf.set(key, value)


_PLACES: dict[str, dict[str, str]] = {}


def _renew(session: SparkSession, location: str, conf: dict[str, str]) -> None:
    """Closes Hadoop's client for a place whose credentials are others now: it would go on with the old ones."""
    parts = urlsplit(location)
    place = f"{parts.scheme}://{parts.netloc}/"
    former = _PLACES.get(place)
    _PLACES[place] = conf
    if former is not None and former != conf:
        jvm = classes()
        path = jvm.org.apache.hadoop.fs.Path(place)
        path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).close()


def declare(session: SparkSession, catalog: Catalog) -> None:
    """Sets the conf of a catalog in a running session."""
    conf, shown = spark_conf(catalog), shown_spark_conf(catalog)
    _redact(session, [key for key in conf if conf[key] != shown[key]])
    for key, value in conf.items():
        session.conf.set(key, value)
    jvm = classes()
    for key, value in java_properties(catalog).items():
        jvm.java.lang.System.setProperty(key, value)


def _redact(session: SparkSession, keys: Sequence[str]) -> None:
    """Has Spark hide settings in its pages and logs, however they are called."""
    names = [re.escape(key) for key in keys]

    def also(pattern: str) -> str:
        return "|".join((pattern, *(name for name in names if name not in pattern)))

    if not names:
        return
    session.conf.set(OPTIONS_REDACTION, also(session.conf.get(OPTIONS_REDACTION) or "(?i)url"))
    context: Any = session._jsparkSession.sparkContext().conf()
    if context.getBoolean("spark.eventLog.enabled", False):
        # The event log has every job's settings, and redacts only those that are in the context's own conf too.
        context.set(REDACTION, also(context.get(REDACTION, SECRETS)))
        for key in keys:
            context.setIfMissing(key, "***")


def for_run(config: Config, plans: Sequence[Plan], given: SparkSession | None) -> SparkSession:
    """A session for runs from Python: a clone of the one given or already at work here, else one that is started.

    Each run has its own: Spark would go on with an earlier run's catalog of the same name.
    """
    there = given or SparkSession.getActiveSession()
    if there is not None:
        return clone(there, plans)
    started = start(config, components_of(plans)).newSession()
    declare_catalogs(started, plans)
    return started


def clone(session: SparkSession, plans: Sequence[Plan]) -> SparkSession:
    """A clone of a session that the user passed in, with the catalogs of the plans; the user's is not altered.

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
    return cloned
