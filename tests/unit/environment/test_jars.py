"""Which jars are wanted, where they are kept, and what is said when they are not there. No JVM."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from helios.environment.coordinates import COMPONENTS, coordinates, parse, pip_command
from helios.environment.jars import cache_folder, ensure, installed_spark, missing_jars_of
from helios.errors import EnvironmentProblem

pytestmark = pytest.mark.promise("jars")

SQLITE = "org.xerial:sqlite-jdbc:3.47.1.0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of Spark 4.1, empty; and no program on PATH, so that a fetch could not go unseen."""
    monkeypatch.setenv("HELIOS_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("HELIOS_OFFLINE", raising=False)
    return tmp_path / "jars" / "4.1"


def jar(folder: Path, coordinate: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / parse(coordinate).file_name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n" * 50)
    return path


@pytest.mark.parametrize("spark", sorted(COMPONENTS))
def test_every_spark_has_the_jars_of_the_embedded_catalog(spark: str) -> None:
    found = coordinates(spark, ["iceberg", "sqlite"])
    assert [parse(text).artifact for text in found] == [f"iceberg-spark-runtime-{spark}_2.13", "sqlite-jdbc"]


@pytest.mark.parametrize("text", sorted({c for rows in COMPONENTS.values() for row in rows.values() for c in row}))
def test_every_pinned_coordinate_is_an_exact_version(text: str) -> None:
    at = parse(text)
    assert re.fullmatch(r"(hadoop3-)?\d[\w.-]*", at.version)
    assert not set(at.version) & set("[](),+*")


@pytest.mark.parametrize("text", ["", "a:b", "a::1", "a:b:1:c:d"])
def test_a_malformed_coordinate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="group:artifact:version"):
        parse(text)


def test_a_full_version_chooses_the_row_of_its_minor() -> None:
    assert coordinates("4.1.4", ["iceberg"]) == coordinates("4.1", ["iceberg"])


def test_a_jar_that_two_components_need_is_wanted_once() -> None:
    found = coordinates("4.1", ["aws", "s3a", "aws"])
    assert len(found) == len(set(found)) == len(COMPONENTS["4.1"]["s3a"])


@pytest.mark.parametrize("version", ["4.2.0", "3.5.1", "5.0.0.dev1", "nonsense"])
def test_an_unsupported_spark_names_the_supported_ones_and_the_command(version: str) -> None:
    with pytest.raises(EnvironmentProblem) as raised:
        coordinates(version, ["iceberg"])
    assert version in raised.value.what
    assert "4.0, 4.1" in raised.value.what
    assert raised.value.fix == "pip install 'pyspark>=4.1,<4.2'."


def test_a_component_of_another_spark_only_names_that_spark() -> None:
    with pytest.raises(EnvironmentProblem, match=r"'kafka' are known for Spark 4\.1, not for Spark 4\.0") as raised:
        coordinates("4.0", ["iceberg", "kafka"])
    assert raised.value.fix == f"{pip_command('4.1')}."


def test_an_unknown_component_gets_the_near_miss() -> None:
    with pytest.raises(EnvironmentProblem, match="Did you mean 'iceberg'"):
        coordinates("4.1", ["icebreg"])


def test_the_cache_is_kept_per_minor_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", str(tmp_path))
    assert cache_folder("4.1.4") == cache_folder("4.1.0") == tmp_path / "jars" / "4.1"
    assert cache_folder("4.0.1") == tmp_path / "jars" / "4.0"


def test_without_a_setting_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", " ")
    folder = cache_folder("4.1")
    assert folder.is_absolute()
    assert "helios" in folder.parts
    assert folder.parts[-2:] == ("jars", "4.1")


def test_a_relative_cache_does_not_move_with_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", "some/where")
    assert cache_folder("4.1") == Path.cwd() / "some" / "where" / "jars" / "4.1"


def test_a_full_cache_is_used_as_it_is(cache: Path) -> None:
    wanted = coordinates("4.1", ["sqlite", "iceberg"])
    paths = [jar(cache, text) for text in wanted]
    assert missing_jars_of(["sqlite", "iceberg"], spark_version="4.1.4") == []
    assert ensure(["sqlite", "iceberg"], spark_version="4.1.4") == paths
    assert sorted(cache.iterdir()) == sorted(paths)  # not even a lock: a read-only cache works


def test_a_truncated_jar_counts_as_missing(cache: Path) -> None:
    path = jar(cache, SQLITE)
    path.write_bytes(path.read_bytes()[:-30])
    assert missing_jars_of(["sqlite"], spark_version="4.1") == [SQLITE]


@pytest.mark.parametrize("by_variable", [False, True])
def test_offline_names_the_jars_the_place_and_the_command(
    cache: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    jar(cache, SQLITE)
    if by_variable:
        monkeypatch.setenv("HELIOS_OFFLINE", "1")
    with pytest.raises(EnvironmentProblem) as raised:
        ensure(["iceberg", "sqlite"], spark_version="4.1.4", offline=not by_variable)
    text = str(raised.value)
    assert "Missing jar org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:" in text
    assert SQLITE not in text
    assert str(cache) in text
    assert "switched off (HELIOS_OFFLINE)" in text if by_variable else "switched off (offline)" in text
    assert "`helios jars`" in text
    assert "\n" not in text


def test_a_cache_that_cannot_be_made_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HELIOS_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("HELIOS_OFFLINE", raising=False)
    with pytest.raises(EnvironmentProblem, match="cannot be stored in") as raised:
        ensure(["sqlite"], spark_version="4.1")
    assert "HELIOS_CACHE" in str(raised.value.fix)


def test_the_installed_spark_is_found_without_importing_it() -> None:
    code = (
        "import sys; from helios.environment.jars import installed_spark; version, jars = installed_spark(); "
        "assert not {'pyspark', 'py4j', 'filelock'} & set(sys.modules), 'loaded'; print(version, jars)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, jars = done.stdout.split(maxsplit=1)
    assert coordinates(version, ["iceberg"])
    assert list(Path(jars.strip()).glob("ivy-*.jar"))


def test_a_missing_pyspark_names_the_command(tmp_path: Path) -> None:
    code = (
        "import sys; from helios.environment import jars\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "try: jars.installed_spark()\n"
        "except jars.EnvironmentProblem as problem: print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "pyspark is not installed in this Python. Fix: pip install 'pyspark>=4.1,<4.2'."


def test_the_jars_folder_lies_inside_the_package() -> None:
    _, jars = installed_spark()
    assert jars.parts[-2:] == ("pyspark", "jars")
