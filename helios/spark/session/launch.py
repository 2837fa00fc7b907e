"""Builds the conf of a session, and starts its JVM.

This module does not import pyspark, so that pyspark can load while the JVM starts.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from helios.config import Config
from helios.environment import class_archive, gateway, jars, java
from helios.environment.memory import driver_heap
from helios.environment.recipe import LOCAL_FILES
from helios.model.values import SECRETS, is_secret

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DRIVER_MEMORY = "spark.driver.memory"
CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
"""With this setting, pyspark sends to the JVM the Python line that creates a column, in ten calls for each column. No
message of Helios shows that line."""
JARS, SQL_EXTENSIONS = "spark.jars", "spark.sql.extensions"
APP = "helios"
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

STATE_STORE_CONF = {
    # RocksDB keeps the state outside of the heap, and a batch stores only its changes. Spark's default provider keeps
    # two copies of all state in memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # With `true`, Spark looks up each key before a write, to count the keys. Helios does not show that count.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""Settings of the state store for new checkpoints. An old checkpoint keeps the provider that its offset log names."""

REDACTION = "spark.redaction.regex"
OPTIONS_REDACTION = "spark.sql.redaction.options.regex"

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # Spark would replace ${env:X} in SQL text, which could leak a secret into a plan.
    "spark.sql.variable.substitute": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own pattern lacks access-key, account.key, connection-string, sas-token, credential and Authorization.
    REDACTION: SECRETS,
    **STATE_STORE_CONF,
}
WORKERS = {"spark.python.daemon.module": "helios.spark.session.workers"}
"""The daemon whose Python workers ignore SIGTERM.

Set only if the workers run this interpreter: another Python may not have Helios, and so not this daemon.
"""

LOCAL_DEFAULTS = {
    # Spark's UI would add half a second to every start; [spark.conf] can turn the UI on.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default of 200 is meant for clusters: each batch would open 200 state stores. A stream keeps the number
    # with which it first started.
    "spark.sql.shuffle.partitions": "4",
}

LOG_LEVELS = {"quiet": "OFF", "debug": "WARN"}


@dataclass(frozen=True)
class Jvm:
    """The JVM for a session, which may still be starting.

    Attributes:
        config: The user's master and conf.
        conf: The conf that the session starts with.
        log: The file with the error output of the JVM; None if the output is shown to the user.
        starting: The JVM that is starting; None if a JVM already runs, or if pyspark will start one.
        slim: Whether the JVM was started by a recipe (`helios.environment.recipe`), without the functions of Spark ML.
    """

    config: Config
    conf: Mapping[str, str]
    version: str
    log: IO[bytes] | None
    starting: gateway.StartingJvm | None = None
    slim: bool = False


def launch(
    config: Config,
    components: Sequence[str],
    *,
    debug: bool = False,
    java_options: str | None = None,
    running: bool = False,
) -> Jvm:
    """Starts the JVM of a session, without waiting for it.

    Args:
        debug: Whether Spark's own log is shown.
        java_options: Options of the JVM; by default the options that use the class archive, if there is one.
        running: Whether this process already has a JVM, so that none is started.

    Raises:
        EnvironmentProblem: Java or a jar is missing.
        OSError: Java does not start.
    """
    version, folder = jars.installed_spark()
    paths = jars.ensure(components, spark_version=version)
    java_home = java.find_java()
    os.environ.update(java.environment(java_home))
    if _is_local(config):
        # Without this variable, Spark looks up this machine's name, and does not start if DNS does not know the name.
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL_DEFAULTS["spark.driver.host"])
    level = LOG_LEVELS["debug" if debug else "quiet"]
    archive_options = class_archive.options(java_home, version) if java_options is None else java_options
    user_options = config.spark_conf.get(JAVA_OPTIONS, "")
    log_options = f'"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}" -Dhelios.log={level}'
    options = f"{log_options} {archive_options} {user_options}".strip()
    conf = {CALL_SITES: str(debug).lower(), **start_conf(config, paths, options)}
    if (python := _python(config)) is not None:
        # pyspark reads spark.pyspark.python only under spark-submit, so PYSPARK_PYTHON is set, too. Local workers need
        # this interpreter's packages for the user's steps. A cluster's machines may not have this path.
        os.environ.setdefault("PYSPARK_PYTHON", python)
    log = None if debug else tempfile.TemporaryFile()  # noqa: SIM115 - stays open while the JVM starts
    if running or gateway.left_to_pyspark():
        return Jvm(config, conf, version, log)
    recipe = class_archive.recipe(java_home, version)
    if recipe is None or not gateway.fits(recipe, config.master, config.spark_conf, paths):
        starting = gateway.by_scripts(folder.parent, arguments(config, conf), log=log)
        return Jvm(config, conf, version, log, starting)
    del conf[JARS]  # the class path has the jars already; Spark would copy jars of the conf for its executor
    conf = {**LOCAL_FILES, **conf}
    starting = gateway.by_recipe(java_home, recipe, paths, memory=conf[DRIVER_MEMORY], options=options, log=log)
    return Jvm(config, conf, version, log, starting, slim=True)


def arguments(config: Config, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings for a JVM's command line, which everybody can read. Secrets go through a socket instead."""
    user_pattern = config.spark_conf.get(REDACTION)
    public = {key: value for key, value in conf.items() if not is_hidden(key, value, user_pattern)}
    return {"spark.master": config.master, "spark.app.name": APP, **public}


def start_conf(config: Config, paths: Iterable[Path], java_options: str) -> dict[str, str]:
    """The conf with which a session is started. The user's settings override the defaults, but add to lists."""
    conf = {
        **DEFAULTS,
        # In local mode the driver is also the executor. Spark's default of 1 GB is meant for a driver alone.
        **({**LOCAL_DEFAULTS, DRIVER_MEMORY: driver_heap().conf} if _is_local(config) else {}),
        **(WORKERS if _is_local(config) and _python(config) == sys.executable else {}),
        **config.spark_conf,
        JARS: _joined(*map(str, paths), config.spark_conf.get(JARS, "")),
        SQL_EXTENSIONS: _joined(EXTENSIONS, config.spark_conf.get(SQL_EXTENSIONS, "")),
        JAVA_OPTIONS: java_options,
    }
    if (user_pattern := config.spark_conf.get(REDACTION)) is not None:
        conf[REDACTION] = f"{SECRETS}|{user_pattern}"  # the user's pattern alone would not match Helios's secrets
    return conf


def _joined(*lists: str) -> str:
    """Joins comma-separated lists into one, with each item once."""
    items = (item.strip() for text in lists for item in text.split(","))
    return ",".join(dict.fromkeys(filter(None, items)))


def _python(config: Config) -> str | None:
    """The Python for the executors; None if the machines of a cluster have their own."""
    python = config.spark_conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return python or (sys.executable if _is_local(config) else None)


def _is_local(config: Config) -> bool:
    return config.master.startswith("local")


def is_hidden(key: str, value: str, user_pattern: str | None) -> bool:
    """True if a setting is a secret by Helios's pattern, or by the user's Java pattern if Python can read it."""
    try:
        return key != REDACTION and (is_secret(key, value) or bool(user_pattern and re.search(user_pattern, key)))
    except re.error:
        return is_secret(key, value)
