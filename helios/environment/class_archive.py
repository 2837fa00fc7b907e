"""An archive of the JVM's classes that makes Spark start in two thirds of the time.

Until a run makes its first commit, Java loads and verifies some 20,000 classes. It can store these classes in a file,
and later starts map the file into memory (dynamic application class-data sharing, JEP 350). Small pipelines run once to
create the archive beside the jars. A JVM that cannot use the archive loads its classes as usual, without a message.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import BadZipFile

from filelock import FileLock, Timeout

from helios.environment import jars
from helios.environment import recipe as recipes
from helios.environment.coordinates import coordinates
from helios.environment.java import Java, environment
from helios.errors import EnvironmentProblem, first_line

TRAINING_SECONDS = 600
"""The time limit for creating the archive, which takes half a minute, or some minutes on a busy machine."""
USUAL_SECONDS = 40.0
"""The usual time for creating the archive."""
PREPARING = "preparing a faster start of Spark, once, in about 40 s ..."
FORMAT = 3
"""The version of the archive and its recipe. If it is increased, Helios creates both again."""

QUIET = "-Xlog:disable -Xlog:all=off"
"""Without these options the JVM prints every class that it leaves out of the archive."""


def path(java: Java, spark_version: str) -> Path:
    """The path of the archive for a Java and a Spark. An archive fits only the Java build that created it."""
    release = java.home / "release"
    build = release.read_text(errors="replace") if release.is_file() else str(java.path.resolve())
    folder = jars.installed_spark()[1].resolve()
    archived = coordinates(spark_version, recipes.ARCHIVED)
    key = hashlib.sha256(f"{FORMAT}{build}{spark_version}{folder}{archived}".encode()).hexdigest()[:12]
    return jars.cache_folder(spark_version) / f"classes-{key}.jsa"


def recipe(java: Java, spark_version: str) -> recipes.Recipe | None:
    """The class path and JVM options for the archive; None if none are stored, or if Spark's jars have changed."""
    return recipes.load(_recipe_file(path(java, spark_version)))


def _recipe_file(archive: Path) -> Path:
    return archive.with_suffix(".json")


def options(java: Java, spark_version: str) -> str:
    """JVM options that use the archive; "" without an archive."""
    archive = path(java, spark_version)
    return f'"-XX:SharedArchiveFile={archive}" {QUIET}' if archive.is_file() else ""


def ensure(java: Java, spark_version: str, progress: Callable[[str], None] = lambda line: None) -> Path | None:
    """Creates the archive if it is missing, and returns its path.

    Creating it takes about half a minute. Another process that needs the archive waits for it. If the archive cannot be
    created, the result is None, and `progress` gets the reason.

    Java refuses an archive if the timestamps of its jars have changed. So the archive is created again after Spark was
    reinstalled, even at the same path.
    """
    archive = path(java, spark_version)
    try:
        with FileLock(f"{archive}.lock", timeout=TRAINING_SECONDS):
            if not archive.is_file() or recipes.load(_recipe_file(archive)) is None:
                progress(PREPARING)
                _train(archive, java)
    except (Timeout, OSError, EnvironmentProblem, BadZipFile, ValueError, subprocess.SubprocessError) as error:
        progress(f"Spark starts without a class archive, which takes longer: none could be made ({_reason(error)})")
        return None
    return archive


def _train(archive: Path, java: Java) -> None:
    """Creates the recipe, then the archive: a process runs small pipelines, and archives the classes that they load."""
    version, _ = jars.installed_spark()
    recipes.make(_recipe_file(archive), archive.with_suffix(".jars"), java, version)
    with tempfile.TemporaryDirectory(prefix="helios-training-") as folder:
        for leftover in archive.parent.glob(f".{archive.name}.*.tmp"):  # files of killed processes
            leftover.unlink(missing_ok=True)
        temporary_file = archive.with_name(f".{archive.name}.{os.getpid()}.tmp")
        try:
            _run([sys.executable, "-m", "helios.spark.run.training", str(temporary_file)], folder, environment(java))
            os.replace(temporary_file, archive)
        finally:
            temporary_file.unlink(missing_ok=True)


def _run(command: list[str], folder: str, variables: Mapping[str, str]) -> None:
    """Runs a command. After an interrupt or the time limit, its JVM is killed too, which would otherwise go on writing.

    Raises:
        OSError: The command does not start.
        subprocess.SubprocessError: The command failed, or took too long.
    """
    env = {**os.environ, **variables}
    env.pop("HELIOS_PROFILE", None)  # the empty folder of the training has no profiles
    out, err = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=out, stderr=err, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=TRAINING_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=output)


def _reason(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return (str(error.stderr or "").strip() or str(error)).splitlines()[-1]
    return first_line(error)
