"""A recipe: the recorded class path and options that start a local JVM of Spark without Spark's scripts.

Spark's `spark-submit` starts one JVM that builds the command, and a second one that parses it. The final options and
class path depend only on the installed Spark: on its launcher, and on the jars in its folder. A recipe records
options and class path. It is created together with the archive of the JVM's classes (`class_archive`), and is valid as
long as Spark's folder has the same files and all jars of the class path exist.

Some jars are copied without some of their entries. Signatures are left out, because the JVM does not archive the
classes of signed jars. The session extension of Spark ML is left out, because it registers functions in every session,
which is slow. Instead, `helios.spark.session.ml` registers them when Spark ML is imported. One more jar is compiled
here, with the class `LocalFiles` for Hadoop's local files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helios.environment import jars
from helios.environment.java import Java, environment

ARCHIVED = ("iceberg", "sqlite")
"""The components whose jars are in every recipe, and whose classes are in the class archive."""

PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
ML_PROVIDER = "org.apache.spark.sql.ml.InternalFunctionRegistration"
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)$", re.IGNORECASE)
_LAUNCHER_SECONDS = 60.0
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_COMPILER_SECONDS = 60.0

LOCAL_FILES = {"spark.hadoop.fs.file.impl": "helios.LocalFiles"}
"""The conf that makes Hadoop use `LocalFiles`. Without it, a process (chmod) is started for each local file."""


@dataclass(frozen=True)
class Recipe:
    """The class path and options that start a JVM of Spark.

    Attributes:
        folder: The folder of Spark's jars.
        files: The files in the folder when the recipe was made, as `name size mtime`.
        options: The JVM options that Spark's launcher uses.
        class_path: All jars. Their order is part of the class archive.
    """

    folder: str
    files: tuple[str, ...]
    options: tuple[str, ...]
    class_path: tuple[str, ...]


def load(file: Path) -> Recipe | None:
    """The recipe in a file; None if there is no file, or if Spark was reinstalled or a jar was removed since."""
    try:
        stored = json.loads(file.read_bytes())
        recipe = Recipe(stored["folder"], *(tuple(stored[key]) for key in ("files", "options", "class_path")))
        if _files(Path(recipe.folder)) != recipe.files:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return recipe if all(map(os.path.isfile, recipe.class_path)) else None


def make(file: Path, copies: Path, java: Java, spark_version: str) -> None:
    """Creates the recipe for the installed Spark, and the copies of jars that it needs.

    Raises:
        OSError: A file cannot be written.
        subprocess.SubprocessError: Spark's launcher fails.
        EnvironmentProblem: A jar is missing and cannot be fetched.
    """
    folder = jars.installed_spark()[1].resolve()
    copies.mkdir(parents=True, exist_ok=True)
    # slf4j-api comes first, then the other jars by name.
    spark_jars = sorted(folder.glob("*.jar"), key=lambda jar: (not jar.name.startswith("slf4j-api-"), jar.name))
    recipe = Recipe(
        folder=str(folder),
        files=_files(folder),
        options=_launcher_options(folder, java),
        class_path=(
            *(str(_stripped(jar, copies)) for jar in spark_jars),
            *map(str, jars.ensure(ARCHIVED, spark_version=spark_version)),
            str(_compiled(folder, copies, java)),
        ),
    )
    temporary_file = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary_file.write_text(json.dumps(asdict(recipe)))
    os.replace(temporary_file, file)


def _files(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        stats = [(entry.name, entry.stat()) for entry in entries]
    return tuple(sorted(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats))


def _stripped(jar: Path, copies: Path) -> Path:
    """Copies a jar without the entries that slow the start down. Returns the jar itself if it has no such entries."""
    with zipfile.ZipFile(jar) as original:
        entries = original.infolist()
        left_out = {entry.filename for entry in entries if _SIGNATURE.match(entry.filename)}
        if PROVIDERS in original.namelist() and _providers(original.read(PROVIDERS).decode()) == [ML_PROVIDER]:
            left_out.add(PROVIDERS)
        if not left_out:
            return jar
        temporary_file = copies / f".{jar.name}.{os.getpid()}.tmp"
        with zipfile.ZipFile(temporary_file, "w", zipfile.ZIP_DEFLATED) as copy:
            for entry in entries:
                if entry.filename not in left_out:
                    copy.writestr(entry, original.read(entry))
    os.replace(temporary_file, copies / jar.name)
    return copies / jar.name


def _compiled(folder: Path, copies: Path, java: Java) -> Path:
    """Compiles LocalFiles.java into a jar."""
    sources, jar = Path(__file__).parent, copies / "helios-local-files.jar"
    compiler = [str(java.path), "-cp", str(folder / "*"), "org.codehaus.janino.SimpleCompiler"]
    with tempfile.TemporaryDirectory(dir=copies) as output_folder:
        subprocess.run(
            [
                *compiler,
                str(sources / "Compile.java"),
                "helios.Compile",
                str(sources / "LocalFiles.java"),
                output_folder,
            ],
            env={**os.environ, **environment(java)},
            check=True,
            capture_output=True,
            text=True,
            timeout=_COMPILER_SECONDS,
        )
        temporary_file = Path(output_folder, jar.name)
        with zipfile.ZipFile(temporary_file, "w") as archive:
            for path in sorted(Path(output_folder).rglob("*.class")):
                archive.write(path, path.relative_to(output_folder))
        os.replace(temporary_file, jar)
    return jar


def _providers(text: str) -> list[str]:
    """The classes that a file of Java's service loader names.

    Examples:
        >>> _providers("# licence\\n\\na.b.C  # one\\n")
        ['a.b.C']
    """
    names = (line.partition("#")[0].strip() for line in text.splitlines())
    return [name for name in names if name]


def _launcher_options(folder: Path, java: Java) -> tuple[str, ...]:
    """The JVM options with which Spark's launcher starts a local driver, without the class path and the memory."""
    arguments = ("--conf", "spark.driver.memory=1g", "pyspark-shell")
    command = [
        str(java.path),
        "-Xmx128m",
        "-cp",
        str(folder / "*"),
        "org.apache.spark.launcher.Main",
        _SUBMIT,
        *arguments,
    ]
    # The recipe must not contain the user's settings of Spark.
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))}
    completed = subprocess.run(
        command,
        env={**env, **environment(java), "SPARK_HOME": str(folder.parent), "SPARK_SCALA_VERSION": "2.13"},
        check=True,
        capture_output=True,
        text=True,
        timeout=_LAUNCHER_SECONDS,
    )
    return launcher_options(completed.stdout.split("\0"))


def launcher_options(printed: Sequence[str]) -> tuple[str, ...]:
    """The JVM options in the output of Spark's launcher, without the class path and the memory.

    Args:
        printed: The output, split at its NUL characters: an empty text, then the words of the command.

    Examples:
        >>> launcher_options(["", "\\n/bin/java", "-cp", "a:b", "-Xmx1g", "-Dx=y", _SUBMIT, "pyspark-shell", ""])
        ('-Dx=y',)
    """
    words = list(printed[: printed.index(_SUBMIT)])
    after_class_path = words[words.index("-cp") + 2 :]
    return tuple(word for word in after_class_path if not word.startswith("-Xmx"))
