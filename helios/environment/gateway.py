"""The JVM of Spark's driver: pyspark is connected to it once it is up.

It is started with a recipe where one fits. Spark's scripts start it wherever their work is needed: on a cluster, with
files of configuration, or with settings that the JVM cannot take any more once it runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from helios.environment.java import Java, environment
from helios.environment.recipe import Recipe

MAIN = "org.apache.spark.api.python.PythonGatewayServer"
CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable that names the file in which the JVM leaves its port and secret."""

SUBMITTED = (
    "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath", "spark.driver.defaultJavaOptions", "spark.driver.userClassPathFirst",
    "spark.kerberos.", "spark.yarn.",
)  # fmt: skip
"""Settings, by the beginnings of their names, that `spark-submit` carries out before the driver's own code runs."""

READ_BY_THE_JVM = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_DIRS", "SPARK_PUBLIC_DNS", "SPARK_USER")
READ_BY_SCRIPTS = ("SPARK_", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
LONGEST_ARGUMENT = 120_000
"""Linux takes no argument of more than 128 KiB, and the class path is one."""
DEAF = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
"""The command prefix that ignores Ctrl-C and SIGTERM, which a terminal, Airflow or systemd send to all processes.

They are for this process: it stops its run in order, and the JVM ends with it; whoever ends the JVM alone uses SIGKILL.
Python would set this in the child between fork and exec, where it may hang: other threads import meanwhile.
"""
_POLL_SECONDS = 0.01


def left_to_pyspark() -> bool:
    """True if pyspark starts the JVM itself, or connects to a given one."""
    return os.name != "posix" or "PYSPARK_GATEWAY_PORT" in os.environ


def fits(recipe: Recipe, master: str, given: Mapping[str, str], jars: Sequence[Path]) -> bool:
    """True if a JVM may be started without Spark's scripts.

    Args:
        recipe: What it would be started with.
        master: Spark's master.
        given: The user's conf.
        jars: The jars of the components.
    """
    scripted = [
        name for name in os.environ if name.startswith(READ_BY_SCRIPTS) and name not in (*READ_BY_THE_JVM, CONNECTION)
    ]
    return (
        re.fullmatch(r"local(\[.*\])?", master) is not None
        and not scripted
        and not Path(recipe.folder).with_name("conf").exists()
        and not any(key.startswith(SUBMITTED) for key in given)
        and "-Xmx" not in given.get("spark.driver.extraJavaOptions", "")
        and len(_class_path(recipe, jars)) < LONGEST_ARGUMENT
    )


def _class_path(recipe: Recipe, jars: Sequence[Path]) -> str:
    """The jars of the recipe first: the archive fits every class path that begins with its own."""
    return os.pathsep.join(dict.fromkeys((*recipe.class_path, *map(str, jars))))


class Starting:
    """A JVM on its way, which ends with this process.

    Args:
        command: What starts it.
        variables: Its environment, beside that of this process.
        log: Where its error output goes; None for that of this process.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: IO[bytes] | None) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._connection = self._folder / "connection"
        try:
            self.process = subprocess.Popen(
                [*DEAF, *command],
                stdin=subprocess.PIPE,  # the JVM ends when this pipe does
                stderr=log,
                env={**os.environ, **variables, CONNECTION: str(self._connection)},
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def connection(self) -> tuple[int, str]:
        """Waits until the JVM is up; its port and secret.

        Raises:
            RuntimeError: It has ended instead.
        """
        try:
            while not self._connection.is_file():
                if self.process.poll() is not None and not self._connection.is_file():
                    assert self.process.stdin is not None
                    self.process.stdin.close()
                    raise RuntimeError(f"Java ended with the status {self.process.returncode}")
                time.sleep(_POLL_SECONDS)
            held = self._connection.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        port, length = struct.unpack(">ii", held[:8])
        return port, held[8 : 8 + length].decode()


def by_recipe(
    java: Java, recipe: Recipe, jars: Sequence[Path], *, memory: str, options: str, log: IO[bytes] | None
) -> Starting:
    """A JVM that is started with a recipe.

    Args:
        java: The Java that it runs on.
        recipe: What it is started with.
        jars: The jars beside those of the recipe.
        memory: Its heap, as `spark.driver.memory` has it.
        options: More options, as `spark.driver.extraJavaOptions` has them.
        log: Where its error output goes; None for that of this process.
    """
    path = _class_path(recipe, jars)
    command = [str(java.path), "-cp", path, f"-Xmx{memory}", *shlex.split(options), *recipe.options, MAIN]
    own = {"PYTHONHASHSEED": "0", "SPARK_SCALA_VERSION": "2.13", "SPARK_HOME": str(Path(recipe.folder).parent)}
    return Starting(command, {**environment(java), **own}, log)


def by_scripts(home: Path, conf: Mapping[str, str], *, log: IO[bytes] | None) -> Starting:
    """A JVM that Spark's scripts start, called as pyspark does, which would not keep SIGTERM from it.

    Args:
        home: The folder of the installed Spark; `SPARK_HOME` goes before it.
        conf: Spark's conf, without secrets: everybody on the machine can read it.
        log: Where its error output goes; None for that of this process.
    """
    script = Path(os.environ.get("SPARK_HOME") or home, "bin", "spark-submit")
    given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return Starting([str(script), *options, *given], {"SPARK_CONNECT_MODE": "0"}, log)
