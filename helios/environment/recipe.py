"""How a local JVM of Spark is started without Spark's scripts: its class path and options, noted once.

Spark's `spark-submit` starts a JVM of its own to make up the command, then one that parses it again. What comes of it
depends only on the installed Spark: the options that its launcher gives, and every jar of its folder. Both are noted
beside the class archive when that is made, and are used as long as the folder has the same files.

Some jars are copied: without the signature, as classes of signed jars are not archived, and without the extension of
Spark ML, which starts Scala's reflection for two functions in every session (`helios.spark.session.ml` adds them). One
is our own: a class for Hadoop's local files.
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
"""The components whose jars every recipe has: their classes are in the archive."""

PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
ML_PROVIDER = "org.apache.spark.sql.ml.InternalFunctionRegistration"
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)$", re.IGNORECASE)
_LAUNCHER_SECONDS = 60.0
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_COMPILER_SECONDS = 60.0

LOCAL_FILES = {"spark.hadoop.fs.file.impl": "helios.LocalFiles"}
"""The conf with which Spark and Iceberg start no process (chmod) for each file that they make on a local disk.

The class is in the class path of every recipe.
"""


@dataclass(frozen=True)
class Recipe:
    """The recipe that starts a JVM of Spark.

    Attributes:
        folder: The folder of Spark's jars.
        files: Its files when the recipe was made, as `name size mtime`.
        options: The options of Spark's own launcher.
        class_path: All jars, in the order in which the archive knows them.
    """

    folder: str
    files: tuple[str, ...]
    options: tuple[str, ...]
    class_path: tuple[str, ...]


def load(note: Path) -> Recipe | None:
    """The recipe in a file; None without one, or if Spark was reinstalled or a jar removed since."""
    try:
        held = json.loads(note.read_bytes())
        recipe = Recipe(held["folder"], *(tuple(held[key]) for key in ("files", "options", "class_path")))
        if _files(Path(recipe.folder)) != recipe.files:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return recipe if all(map(os.path.isfile, recipe.class_path)) else None


def make(note: Path, copies: Path, java: Java, spark_version: str) -> None:
    """Makes the recipe of the installed Spark, and the jars that it has copies of.

    Args:
        note: The file that will hold it.
        copies: The folder of the copied jars.
        java: The Java that it is for.
        spark_version: The version of Spark.

    Raises:
        OSError: A file cannot be written.
        subprocess.SubprocessError: Spark's launcher fails.
    """
    folder = jars.installed_spark()[1].resolve()
    copies.mkdir(parents=True, exist_ok=True)
    names = sorted(folder.glob("*.jar"), key=lambda jar: (not jar.name.startswith("slf4j-api-"), jar.name))
    recipe = Recipe(
        folder=str(folder),
        files=_files(folder),
        options=_launcher_options(folder, java),
        class_path=(
            *(str(_copied(jar, copies)) for jar in names),
            *map(str, jars.ensure(ARCHIVED, spark_version=spark_version)),
            str(_compiled(folder, copies, java)),
        ),
    )
    draft = note.with_name(f".{note.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(asdict(recipe)))
    os.replace(draft, note)


def _files(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as found:
        stats = [(entry.name, entry.stat()) for entry in found]
    return tuple(sorted(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats))


def _copied(jar: Path, copies: Path) -> Path:
    """A jar, or its copy without the entries that slow it down."""
    with zipfile.ZipFile(jar) as held:
        entries = held.infolist()
        left_out = {entry.filename for entry in entries if _SIGNATURE.match(entry.filename)}
        if PROVIDERS in held.namelist() and _providers(held.read(PROVIDERS).decode()) == [ML_PROVIDER]:
            left_out.add(PROVIDERS)
        if not left_out:
            return jar
        draft = copies / f".{jar.name}.{os.getpid()}.tmp"
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as made:
            for entry in entries:
                if entry.filename not in left_out:
                    made.writestr(entry, held.read(entry))
    os.replace(draft, copies / jar.name)
    return copies / jar.name


def _compiled(folder: Path, copies: Path, java: Java) -> Path:
    """The jar of our own class, compiled."""
    here, jar = Path(__file__).parent, copies / "helios-local-files.jar"
    compiler = [str(java.path), "-cp", str(folder / "*"), "org.codehaus.janino.SimpleCompiler"]
    with tempfile.TemporaryDirectory(dir=copies) as out:
        subprocess.run(
            [*compiler, str(here / "Compile.java"), "helios.Compile", str(here / "LocalFiles.java"), out],
            env={**os.environ, **environment(java)},
            check=True,
            capture_output=True,
            text=True,
            timeout=_COMPILER_SECONDS,
        )
        draft = Path(out, jar.name)
        with zipfile.ZipFile(draft, "w") as made:
            for path in sorted(Path(out).rglob("*.class")):
                made.write(path, path.relative_to(out))
        os.replace(draft, jar)
    return jar


def _providers(text: str) -> list[str]:
    """The classes that a file of Java's service loader names.

    Examples:
        >>> _providers("# licence\\n\\na.b.C  # one\\n")
        ['a.b.C']
    """
    return [name for line in text.splitlines() if (name := line.partition("#")[0].strip())]


def _launcher_options(folder: Path, java: Java) -> tuple[str, ...]:
    """The JVM options that Spark's launcher gives a local driver, but for its class path and memory."""
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
    own = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))}
    done = subprocess.run(
        command,
        env={**own, **environment(java), "SPARK_HOME": str(folder.parent), "SPARK_SCALA_VERSION": "2.13"},
        check=True,
        capture_output=True,
        text=True,
        timeout=_LAUNCHER_SECONDS,
    )
    return launcher_options(done.stdout.split("\0"))


def launcher_options(printed: Sequence[str]) -> tuple[str, ...]:
    """The options in what Spark's launcher prints: a first line, then a command, each part ended by a NUL.

    Examples:
        >>> launcher_options(["", "\\n/bin/java", "-cp", "a:b", "-Xmx1g", "-Dx=y", _SUBMIT, "pyspark-shell", ""])
        ('-Dx=y',)
    """
    words = list(printed[: printed.index(_SUBMIT)])
    at = words.index("-cp")
    return tuple(word for word in words[at + 2 :] if not word.startswith("-Xmx"))
