"""What the repository and the package say of themselves."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from helios.version import VERSION

pytestmark = pytest.mark.promise("package")

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version_and_one_name_of_the_authors() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["authors"] == PROJECT["project"]["authors"] == [{"name": "The Helios developers"}]
    assert citation["license"] == PROJECT["project"]["license"]
    minor = ".".join(VERSION.split(".")[:2])
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_nox_runs_the_tests_on_each_python_of_the_classifiers() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    tested = re.findall(r'"(3\.\d+)"', re.findall(r"session\(python=\[(.*)\]\)", (ROOT / "noxfile.py").read_text())[0])
    assert named == tested[: len(named)]
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_no_address_is_invented() -> None:
    assert "urls" not in PROJECT["project"]
    for name in ("SECURITY.md", "CITATION.cff", *map(str, (ROOT / ".github").rglob("*.yml"))):
        assert re.findall(r"https?://|[\w.]+@[\w.]+", (ROOT / name).read_text()) == [], name


def test_the_templates_of_issues_are_forms() -> None:
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(file.read_text())
        assert {"name", "description", "body"} <= set(form)
        fields = [one for one in form["body"] if one["type"] != "markdown"]
        assert len({one["id"] for one in fields}) == len(fields)
        assert all(one["attributes"]["label"] for one in fields)


def test_readers_of_types_are_told_that_there_are_some() -> None:
    assert (ROOT / "helios" / "py.typed").read_text() == ""
