"""The package: sdist and wheel are built from this checkout, and installed into an environment of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from helios.version import VERSION

pytestmark = pytest.mark.promise("package")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = f"helios_iceberg-{VERSION}"


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path) -> Path:
    """An empty environment; the Python in it."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with sdist and wheel, the wheel built from the sdist as `python -m build` does."""
    folder = tmp_path_factory.mktemp("package")
    python = environment(folder / "builds")
    run(python, "-m", "pip", "install", "-q", *PROJECT["build-system"]["requires"], cwd=folder)
    run(python, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "dist", cwd=ROOT)
    with tarfile.open(folder / "dist" / f"{NAME}.tar.gz") as sdist:
        sdist.extractall(folder, filter="data")
    run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=folder / NAME)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl")


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return message_from_string(wheel.read(f"{NAME}.dist-info/METADATA").decode())


@pytest.mark.landing
def test_the_wheel_has_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    tracked = run("git", "ls-files", "helios", cwd=ROOT).split()
    assert set(tracked) <= names
    assert {name.split("/")[0] for name in names} == {"helios", f"{NAME}.dist-info"}
    assert "helios/py.typed" in names


@pytest.mark.landing
def test_the_sdist_has_what_its_readme_names(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as sdist:
        names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if link not in names] == []
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", "build", "dist"))]


@pytest.mark.landing
def test_the_page_of_an_index_has_no_link_to_a_file(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https?://|#)", text) == []
    readme = (ROOT / "README.md").read_text()
    assert len(text) > 0.8 * len(readme)
    assert "Exactly once" in text
    assert text.count("```") == readme.count("```")


@pytest.mark.landing
def test_the_metadata_name_authors_and_pythons(metadata: Message) -> None:
    assert metadata["Author"] == "The Helios developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Project-URL" not in metadata
    pythons = [text for text in metadata.get_all("Classifier", []) if "Python :: 3." in text]
    assert "Programming Language :: Python :: 3.11" in pythons


def look_around(python: Path, folder: Path) -> None:
    """From the installed package alone: the version, types, a first project, its check and its plan."""
    helios = python.parent / "helios"
    folder.mkdir()
    assert run(helios, "--version", cwd=folder) == f"helios, version {VERSION}\n"
    where = run(python, "-c", "import helios; print(helios.__file__)", cwd=folder)
    assert str(python.parents[1]) in where
    run(helios, "init", "demo", cwd=folder)
    assert "no problems: local.shop.orders" in run(helios, "check", "pipeline.py", cwd=folder / "demo")
    assert run(helios, "plan", "pipeline.py", cwd=folder / "demo").startswith("pipeline local.shop.orders")


@pytest.mark.cases(landing="py3-none-any.whl")
@pytest.mark.parametrize("kind", ["py3-none-any.whl", "tar.gz"])
def test_each_installs_into_an_environment_of_its_own(kind: str, built: Path, tmp_path: Path) -> None:
    """What it depends on is taken from the environment of the tests, without the checkout that is installed there."""
    python = environment(tmp_path / "env")
    [file] = built.glob(f"*{kind}")
    run(python, "-m", "pip", "install", "-q", "--no-deps", file, cwd=tmp_path)
    seen = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (seen / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    look_around(python, tmp_path / "here")


@pytest.mark.slow
def test_the_wheel_installs_with_all_that_it_depends_on(built: Path, tmp_path: Path) -> None:
    """From the index that pip knows here: Spark alone is 400 MB."""
    python = environment(tmp_path / "env")
    [file] = built.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", file, cwd=tmp_path)
    look_around(python, tmp_path / "here")
    assert run(python, "-m", "pip", "check", cwd=tmp_path) == "No broken requirements found.\n"
    assert sys.version_info >= (3, 11)
