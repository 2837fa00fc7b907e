"""The conf with which a session starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.config import load
from helios.spark.session import launch

pytestmark = pytest.mark.promise("configuration")


def test_jars_and_extensions_of_the_user_are_added(tmp_path: Path) -> None:
    (tmp_path / "helios.toml").write_text(
        '[spark.conf]\n"spark.jars" = "/a.jar, /own.jar"\n"spark.sql.extensions" = "org.own.Extensions"\n'
    )
    conf = launch.start_conf(load(tmp_path), [Path("/iceberg.jar"), Path("/a.jar")], "")
    assert conf["spark.jars"] == "/iceberg.jar,/a.jar,/own.jar"
    assert conf["spark.sql.extensions"] == f"{launch.EXTENSIONS},org.own.Extensions"
