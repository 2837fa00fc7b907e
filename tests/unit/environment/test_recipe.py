"""The recipe of a JVM that is started without Spark's scripts: what it holds, and when it is not used."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from helios.environment import class_archive, gateway, recipe
from helios.environment.jars import installed_spark
from helios.environment.java import Java, find_java
from helios.environment.recipe import ML_PROVIDER, PROVIDERS, Recipe
from tests.suite.waiting import until


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Spark with the real launcher, a signed jar, one of Spark ML and one of both."""
    folder = tmp_path / "pyspark" / "jars"
    folder.mkdir(parents=True)
    _, real = installed_spark()
    needed = ("spark-launcher_", "slf4j-api-", "janino-", "commons-compiler-", "hadoop-client-api-")
    for jar in (jar for name in needed for jar in real.glob(f"{name}*.jar")):
        (folder / jar.name).symlink_to(jar)
    _jar(folder / "a-signed.jar", {"META-INF/A.SF": "x", "META-INF/A.RSA": "x", "a/B.class": "bytes"})
    _jar(folder / "ml.jar", {PROVIDERS: f"# licence\n{ML_PROVIDER}\n", "c/D.class": "bytes"})
    _jar(folder / "own.jar", {PROVIDERS: "own.Extension\n"})
    jar = tmp_path / "iceberg.jar"
    _jar(jar, {})
    monkeypatch.setattr(recipe.jars, "installed_spark", lambda: ("4.1.4", folder))
    monkeypatch.setattr(recipe.jars, "ensure", lambda components, spark_version: [jar])
    return folder


def _jar(path: Path, entries: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in entries.items():
            made.writestr(name, text)


def _made(tmp_path: Path) -> Recipe:
    recipe.make(tmp_path / "note.json", tmp_path / "copies", find_java(), "4.1.4")
    found = recipe.load(tmp_path / "note.json")
    assert found is not None
    return found


def test_a_recipe_has_the_launchers_options_and_every_jar(spark: Path, tmp_path: Path) -> None:
    made = _made(tmp_path)
    assert "--add-opens=java.base/java.lang=ALL-UNNAMED" in made.options
    assert not any(option.startswith(("-Xmx", "-cp")) for option in made.options)
    first, *names = [Path(jar).name for jar in made.class_path]
    assert first.startswith("slf4j-api-")
    assert names[-2:] == ["iceberg.jar", "helios-local-files.jar"]
    assert set(names) == {jar.name for jar in spark.iterdir()} - {first} | set(names[-2:])
    with zipfile.ZipFile(made.class_path[-1]) as own:
        assert own.namelist() == ["helios/LocalFiles$Raw.class", "helios/LocalFiles.class"]


def test_copies_are_without_signature_and_without_sparks_ml_extension(spark: Path, tmp_path: Path) -> None:
    entries = {}
    for jar in map(Path, _made(tmp_path).class_path):
        with zipfile.ZipFile(jar) as held:
            entries[jar.name] = (jar.parent.name, held.namelist())
    assert entries["a-signed.jar"] == ("copies", ["a/B.class"])
    assert entries["ml.jar"] == ("copies", ["c/D.class"])
    assert entries["own.jar"] == ("jars", [PROVIDERS])


@pytest.mark.parametrize("change", ["added", "replaced", "removed", "copy", "torn"])
def test_a_spark_that_has_changed_has_no_recipe(spark: Path, tmp_path: Path, change: str) -> None:
    made = _made(tmp_path)
    note = tmp_path / "note.json"
    match change:
        case "added":
            _jar(spark / "user.jar", {})
        case "replaced":
            _jar(spark / "own.jar", {"e/F.class": ""})
        case "removed":
            (spark / "own.jar").unlink()
        case "copy":
            os.unlink(next(jar for jar in made.class_path if "copies" in jar))
        case "torn":
            note.write_text(note.read_text()[:100])
    assert recipe.load(note) is None


def test_no_recipe_was_made(tmp_path: Path) -> None:
    assert recipe.load(tmp_path / "none.json") is None


RECIPE = Recipe(folder="/spark/jars", files=(), options=(), class_path=("/spark/jars/a.jar", "/cache/iceberg.jar"))


def test_what_only_sparks_scripts_carry_out_is_left_to_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(gateway.READ_BY_SCRIPTS)]:
        monkeypatch.delenv(name)

    def fits(master: str = "local[2]", given: dict[str, str] | None = None, jars: tuple[Path, ...] = ()) -> bool:
        return gateway.fits(RECIPE, master, given or {}, jars)

    assert fits()
    assert fits("local")
    assert fits(
        given={"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-Da=b", "spark.ui.enabled": "true"}
    )
    assert not fits("spark://host:7077")
    assert not fits("local-cluster[2,1,1024]")
    for key in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.kerberos.keytab"):
        assert not fits(given={key: "x"}), key
    assert not fits(given={"spark.driver.extraJavaOptions": "-Xmx3g"})  # Spark says that it may not be set there
    assert not fits(jars=tuple(Path("/very/long", "x" * 200, f"{i}.jar") for i in range(600)))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    assert fits()
    (tmp_path / "conf").mkdir()
    assert not gateway.fits(replace(RECIPE, folder=str(tmp_path / "jars")), "local", {}, ())
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "x")
            assert not fits(), name


def test_a_jvm_that_ends_at_once_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        starting = gateway.by_recipe(find_java(), RECIPE, (), memory="nonsense", options="", log=log)
        with pytest.raises(RuntimeError, match="Java ended with the status 1"):
            starting.connection()
    assert "Invalid maximum heap size" in (tmp_path / "log").read_text()


def test_spark_that_was_installed_anew_at_its_path_gets_another_archive(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installation of a CI at the path of the last one, with that one's cache."""
    made = []

    def train(archive: Path, found: Java) -> None:
        made.append(archive)
        archive.touch()
        _made(tmp_path)

    monkeypatch.setattr(class_archive, "_train", train)
    monkeypatch.setattr(class_archive, "_recipe_file", lambda archive: tmp_path / "note.json")
    monkeypatch.setattr(class_archive, "path", lambda *_: tmp_path / "archive.jsa")
    for _ in range(2):
        class_archive.ensure(find_java(), "4.1.3")
    assert len(made) == 1
    os.utime(spark / "own.jar", (1, 1))
    for _ in range(2):
        class_archive.ensure(find_java(), "4.1.3")
    assert len(made) == 2


def test_a_training_that_takes_too_long_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    script = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(pid)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    monkeypatch.setattr(class_archive, "TRAINING_SECONDS", 3)
    with pytest.raises(subprocess.TimeoutExpired):
        class_archive._run([sys.executable, "-c", script], str(tmp_path), {})
    state = Path(f"/proc/{pid.read_text()}/stat")
    until(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")
