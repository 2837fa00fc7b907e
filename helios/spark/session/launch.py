"""The conf of a session, and the start of its JVM; nothing here imports pyspark, which loads while the JVM starts."""

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
"""With this setting pyspark sends the Python line of each column to the JVM, which takes ten calls. No message of
Helios shows that line."""
JARS = "spark.jars"
APP = "helios"
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

STATE = {
    # State outside the heap; a batch stores only its changes. Spark's default keeps two copies of all state in memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The count of keys, which Helios does not show, takes a look-up before each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""The state of streams in new checkpoints. An old checkpoint keeps the provider that Spark noted in its offset log."""

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
WORKERS = {"spark.python.daemon.module": "helios.spark.session.workers"}
"""The daemon whose workers survive a SIGTERM to all processes; only for this Python, as another may lack Helios."""

LOCAL_DEFAULTS = {
    # A UI that nobody opens takes half a second of every start; [spark.conf] turns it on.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default, 200 state stores per batch, is for clusters; a stream keeps the number it started with.
    "spark.sql.shuffle.partitions": "4",
}

LOG_LEVELS = {"quiet": "OFF", "debug": "WARN"}


@dataclass(frozen=True)
class Jvm:
    """A JVM for a session.

    Attributes:
        config: The user's master and conf.
        conf: The conf that the session starts with.
        version: The version of Spark.
        log: The error output of the JVM; None if the user sees it.
        starting: The JVM that is starting; None if a JVM runs already, or pyspark starts it.
        slim: Whether a recipe starts it, without the functions of Spark ML.
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
        config: Master and conf.
        components: The jar components that the session needs.
        debug: Whether Spark's own log is shown.
        java_options: Options of the JVM; by default those that use the class archive, when there is one.
        running: Whether this process has a JVM already, so that none is started.

    Raises:
        EnvironmentProblem: Java or a jar is missing.
        OSError: Java does not start.
    """
    version, folder = jars.installed_spark()
    paths = jars.ensure(components, spark_version=version)
    java_home = java.find_java()
    os.environ.update(java.environment(java_home))
    if _is_local(config):
        # Without it Spark looks up the name of this machine, and does not start if no DNS knows the name.
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL_DEFAULTS["spark.driver.host"])
    level = LOG_LEVELS["debug" if debug else "quiet"]
    faster = class_archive.options(java_home, version) if java_options is None else java_options
    user_options = config.spark_conf.get(JAVA_OPTIONS, "")
    options = f'"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}" -Dhelios.log={level} {faster} {user_options}'.strip()
    conf = {CALL_SITES: str(debug).lower(), **start_conf(config, paths, options)}
    if (python := _python(config)) is not None:
        # pyspark reads the conf of this setting only under spark-submit. Executors in this process use this
        # interpreter, whose packages the user's steps import; a cluster's machines may have no such path.
        os.environ.setdefault("PYSPARK_PYTHON", python)
    log = None if debug else tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the JVM starts
    if running or gateway.left_to_pyspark():
        return Jvm(config, conf, version, log)
    recipe = class_archive.recipe(java_home, version)
    if recipe is None or not gateway.fits(recipe, config.master, config.spark_conf, paths):
        starting = gateway.by_scripts(folder.parent, arguments(config, conf), log=log)
        return Jvm(config, conf, version, log, starting)
    del conf[JARS]  # the jars are on the class path; Spark would copy them for its executor, which is the driver
    conf = {**LOCAL_FILES, **conf}
    starting = gateway.by_recipe(java_home, recipe, paths, memory=conf[DRIVER_MEMORY], options=options, log=log)
    return Jvm(config, conf, version, log, starting, slim=True)


def arguments(config: Config, conf: Mapping[str, str]) -> dict[str, str]:
    """The arguments of a JVM, without secrets: everybody on the machine can read them. A socket carries the secrets."""
    own = config.spark_conf.get(REDACTION)
    shown = {key: value for key, value in conf.items() if not hidden(key, value, own)}
    return {"spark.master": config.master, "spark.app.name": APP, **shown}


def start_conf(config: Config, paths: Iterable[Path], java_options: str) -> dict[str, str]:
    """The conf of a session that is started: the defaults, then the user's."""
    conf = {
        **DEFAULTS,
        # Driver and executors are one process here; Spark's 1 GB is meant for a driver alone.
        **({**LOCAL_DEFAULTS, DRIVER_MEMORY: driver_heap().conf} if _is_local(config) else {}),
        JARS: ",".join(str(path) for path in paths),
        "spark.sql.extensions": EXTENSIONS,
        **(WORKERS if _is_local(config) and _python(config) == sys.executable else {}),
        **config.spark_conf,
        JAVA_OPTIONS: java_options,
    }
    if (own := config.spark_conf.get(REDACTION)) is not None:
        conf[REDACTION] = f"{SECRETS}|{own}"  # the user's pattern alone would not cover Helios's secrets
    return conf


def _python(config: Config) -> str | None:
    """The executors' Python; None if a cluster's machines have their own."""
    python = config.spark_conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return python or (sys.executable if _is_local(config) else None)


def _is_local(config: Config) -> bool:
    return config.master.startswith("local")


def hidden(key: str, value: str, own: str | None) -> bool:
    """True if a setting is a secret, by Helios's pattern or by the user's, which is a Java pattern."""
    try:
        return key != REDACTION and (is_secret(key, value) or bool(own and re.search(own, key)))
    except re.error:
        return is_secret(key, value)
