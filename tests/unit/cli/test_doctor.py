"""`doctor` and `jars`, without a JVM."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

pytestmark = pytest.mark.promise("doctor")

Run = Callable[..., Result]


def checks(shown: Result) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(shown.stdout)["checks"]}


def test_the_doctor_tries_the_storage_and_leaves_nothing(cli: Run, folder: Path) -> None:
    found = checks(cli("doctor", "--json"))
    assert list(found) == [
        "java", "spark", "jars", "memory", "catalog local",
        "storage of local: put", "storage of local: get", "storage of local: delete",
    ]  # fmt: skip
    for name in list(found)[3:]:
        assert found[name]["ok"], found[name]
        assert found[name]["milliseconds"] >= 0
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_the_doctor_of_a_script_looks_at_the_catalogs_that_it_uses(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(
        "from helios import *\n"
        "lake = Catalog.local('lake', path='lake')\n"
        "unused = Catalog.local('unused', path='unused')\n"
        "p = Memory.source([{'id': 1}]) >> Iceberg.sink('lake.a.b')\n"
    )
    found = checks(cli("doctor", "a.py", "--json"))
    assert [name for name in found if name.startswith("catalog")] == ["catalog lake"]
    for declared in ("unused", "spare"):
        (folder / "helios.toml").write_text("[catalogs.spare]\ntype = 'local'\npath = 'spare'\n")
        found = checks(cli("doctor", "a.py", "--json", "--catalog", declared))
        assert [name for name in found if name.startswith("catalog")] == [f"catalog {declared}"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(cli: Run, folder: Path) -> None:
    (folder / ".helios").mkdir(mode=0o500)
    assert cli("doctor").exit_code == 1


def test_a_broken_catalog_and_a_broken_storage_are_told_with_cause_and_fix(cli: Run, folder: Path) -> None:
    (folder / ".helios").mkdir()
    (folder / ".helios" / "catalog.db").write_text("this is no database, and long enough to say so " * 30)
    (folder / ".helios" / "warehouse").write_text("a file where a folder should be")
    shown = cli("doctor", "--json")
    assert shown.exit_code == 1
    found = checks(shown)
    assert json.loads(shown.stdout)["ok"] is False
    assert found["catalog local"]["ok"] is False
    assert "not a database" in found["catalog local"]["detail"]
    assert found["storage of local: put"]["ok"] is False
    assert found["storage of local: put"]["fix"]
    assert "storage of local: get" not in found
    told = cli("doctor").stderr
    assert "error: catalog local: " in told
    assert "Fix: " in told


def test_a_temporary_catalog_has_no_storage_to_try(cli: Run, folder: Path) -> None:
    (folder / "helios.toml").write_text('[catalogs.scratch]\ntype = "memory"\n')
    found = checks(cli("doctor", "--catalog", "scratch", "--json"))
    assert found["storage of scratch"]["ok"] is None
    assert "catalog local" not in found


def test_an_unknown_catalog(cli: Run) -> None:
    shown = cli("doctor", "--catalog", "locl")
    assert shown.exit_code == 2
    assert "Did you mean 'local'?" in shown.stderr


def test_missing_jars_are_told(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", str(folder / "cache"))
    shown = cli("doctor", "--json")
    found = checks(shown)
    assert shown.exit_code == 1
    assert found["jars"]["ok"] is False
    assert "iceberg-spark-runtime" in found["jars"]["detail"]
    assert "helios jars" in found["jars"]["fix"]


def test_jars_offline_says_what_is_missing(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_CACHE", str(folder / "cache"))
    monkeypatch.setenv("HELIOS_OFFLINE", "1")
    shown = cli("jars", "--json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["error"] == "EnvironmentProblem"


def test_jars_lists_what_the_cache_has(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    from helios.environment import class_archive
    from helios.environment.coordinates import coordinates, parse
    from helios.environment.jars import cache_folder, installed_spark

    monkeypatch.setenv("HELIOS_CACHE", str(folder / "cache"))
    version, _ = installed_spark()
    cache = cache_folder(version)
    cache.mkdir(parents=True)
    # It starts Spark, which tests/integration/test_jars.py does.
    monkeypatch.setattr(class_archive, "ensure", lambda *_: None)
    names = [parse(text).file_name for text in coordinates(version, ("iceberg", "sqlite"))]
    for name in names:
        with zipfile.ZipFile(cache / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "")
    assert cli("jars").stdout.splitlines() == [str(cache / name) for name in names]
    listed = json.loads(cli("jars", "--json").stdout)
    assert listed["components"] == ["iceberg", "sqlite"]
    assert listed["jars"] == [str(cache / name) for name in names]


def test_jars_of_a_script_are_those_of_its_sources_and_sinks_too(cli: Run, folder: Path, monkeypatch: Any) -> None:
    from helios.environment import class_archive, jars

    wanted: list[list[str]] = []
    monkeypatch.setattr(class_archive, "ensure", lambda *_: None)
    monkeypatch.setattr(jars, "ensure", lambda needed, **_: wanted.append(list(needed)) or [])
    (folder / "p.py").write_text(
        "from helios import Files, Iceberg, Kafka\n"
        "topic = Kafka.source('t').servers('localhost:1') >> Iceberg.sink('a.t')\n"
        "folder = Files.source('s3://bucket/in/', 'csv', schema='id int') >> Iceberg.sink('a.u')\n"
    )
    assert cli("jars", "p.py").exit_code == 0
    [needed] = wanted
    assert {"iceberg", "sqlite", "kafka"} <= set(needed)
    assert any("aws" in name or "s3" in name for name in needed)
