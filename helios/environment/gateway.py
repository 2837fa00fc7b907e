"""Starts the JVM of Spark's driver, to which pyspark then connects.

If possible, the JVM is started directly, with the class path and options that a recipe has recorded (see `recipe`).
Spark's scripts start it for a cluster, or if there are configuration files or settings that only the scripts apply.
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
"""The variable that names the file to which the JVM writes its port and secret."""

SUBMIT_SETTINGS = (
    "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath", "spark.driver.defaultJavaOptions", "spark.driver.userClassPathFirst",
    "spark.kerberos.", "spark.yarn.",
)  # fmt: skip
"""Prefixes of settings that `spark-submit` applies before the driver's code runs. A recipe cannot apply them."""

READ_BY_THE_JVM = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_DIRS", "SPARK_PUBLIC_DNS", "SPARK_USER")
READ_BY_SCRIPTS = ("SPARK_", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Prefixes of environment variables that a recipe cannot apply; the variables of `READ_BY_THE_JVM` are no obstacle."""
LONGEST_ARGUMENT = 120_000
"""The largest class path: it is one argument, and Linux takes no argument of more than 128 KiB."""
IGNORING_SIGNALS = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
"""The beginning of a command that makes the JVM ignore Ctrl-C and SIGTERM.

A terminal, Airflow or systemd send these signals to all processes. Only this Python process handles them: it stops the
run in an orderly way, and then the JVM ends too. `preexec_fn` is no alternative: Python code between fork and exec may
hang while other threads import modules.
"""
_POLL_SECONDS = 0.01


def left_to_pyspark() -> bool:
    """True if pyspark must start the JVM itself, or connect to a running one."""
    return os.name != "posix" or "PYSPARK_GATEWAY_PORT" in os.environ


def fits(recipe: Recipe, master: str, user_conf: Mapping[str, str], jars: Sequence[Path]) -> bool:
    """True if the recipe can start a JVM without Spark's scripts."""
    script_variables = [
        name for name in os.environ if name.startswith(READ_BY_SCRIPTS) and name not in (*READ_BY_THE_JVM, CONNECTION)
    ]
    return (
        re.fullmatch(r"local(\[.*\])?", master) is not None
        and not script_variables
        and not Path(recipe.folder).with_name("conf").exists()
        and not any(key.startswith(SUBMIT_SETTINGS) for key in user_conf)
        and "-Xmx" not in user_conf.get("spark.driver.extraJavaOptions", "")
        and len(_class_path(recipe, jars)) < LONGEST_ARGUMENT
    )


def _class_path(recipe: Recipe, jars: Sequence[Path]) -> str:
    """The class path. The recipe's jars come first: the class archive fits only class paths that begin with them."""
    return os.pathsep.join(dict.fromkeys((*recipe.class_path, *map(str, jars))))


class StartingJvm:
    """A JVM that is starting. The JVM ends when this process ends.

    Args:
        variables: Environment variables, in addition to those of this process.
        log: The file for the JVM's error output; None for the error output of this process.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: IO[bytes] | None) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._connection = self._folder / "connection"
        try:
            self.process = subprocess.Popen(
                [*IGNORING_SIGNALS, *command],
                stdin=subprocess.PIPE,  # the JVM ends when this pipe is closed
                stderr=log,
                env={**os.environ, **variables, CONNECTION: str(self._connection)},
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def connection(self) -> tuple[int, str]:
        """Waits until the JVM is up, and returns its port and secret. Raises RuntimeError if the JVM has ended."""
        try:
            while not self._connection.is_file():
                if self.process.poll() is not None and not self._connection.is_file():
                    assert self.process.stdin is not None
                    self.process.stdin.close()
                    raise RuntimeError(f"Java ended with the status {self.process.returncode}")
                time.sleep(_POLL_SECONDS)
            content = self._connection.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        # The file contains two integers of 4 bytes (the port and the length of the secret), then the secret.
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()


def by_recipe(
    java: Java, recipe: Recipe, jars: Sequence[Path], *, memory: str, options: str, log: IO[bytes] | None
) -> StartingJvm:
    """Starts a JVM with a recipe.

    Args:
        jars: The jars in addition to those of the recipe.
        memory: The size of the heap, in the format of `spark.driver.memory`.
        options: More options, in the format of `spark.driver.extraJavaOptions`.
        log: As for `StartingJvm`.
    """
    class_path = _class_path(recipe, jars)
    command = [str(java.path), "-cp", class_path, f"-Xmx{memory}", *shlex.split(options), *recipe.options, MAIN]
    # Spark's scripts set these variables too.
    spark_variables = {
        "PYTHONHASHSEED": "0",
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_HOME": str(Path(recipe.folder).parent),
    }
    return StartingJvm(command, {**environment(java), **spark_variables}, log)


def by_scripts(home: Path, conf: Mapping[str, str], *, log: IO[bytes] | None) -> StartingJvm:
    """Starts a JVM with Spark's scripts, as pyspark does; pyspark, however, would not make the JVM ignore SIGTERM.

    Args:
        home: The folder of the installed Spark; the variable `SPARK_HOME` overrides it.
        conf: Spark's conf. It must not contain secrets, since every user of the machine can read the command line.
        log: As for `StartingJvm`.
    """
    script = Path(os.environ.get("SPARK_HOME") or home, "bin", "spark-submit")
    submit_args = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return StartingJvm([str(script), *options, *submit_args], {"SPARK_CONNECT_MODE": "0"}, log)
