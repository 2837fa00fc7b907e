"""`scripts/java.sh --install` takes the Java that the distribution has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.promise("doctor")
SCRIPT = Path(__file__).parents[3] / "scripts" / "java.sh"
PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def install(folder: Path, **versions: int) -> subprocess.CompletedProcess[str]:
    """Runs the script as root on a machine without Java, whose apt-get has the packages with these versions."""
    jvm, has = folder / "jvm", folder / "has"
    has.mkdir()
    for name, version in versions.items():
        home = jvm / "new"
        java = f"echo '    java.specification.version = {version}'; echo '    java.home = {home}'"
        program(has / f"{name.replace('_', '-')}-jre-headless", java)
    program(folder / "bin" / "id", "echo 0")
    program(folder / "bin" / "apt-cache", f'if test -e "{has}/$2"; then echo "Package: $2"; fi')
    program(
        folder / "bin" / "apt-get",
        f'package="${{@: -1}}"; test "$1" = update && exit; echo "$package" >>{folder}/installed\n'
        f'mkdir -p {jvm}/new/bin && cp "{has}/$package" {jvm}/new/bin/java',
    )
    for tool in ("bash", "sed", "mkdir", "cp", "env"):
        found = subprocess.run(["which", tool], check=True, capture_output=True, text=True).stdout.strip()
        (folder / "bin" / tool).symlink_to(found)
    env = {"PATH": str(folder / "bin"), "JVM_FOLDER": str(jvm)}
    return subprocess.run([SCRIPT, "--install"], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("versions", "installed"),
    [
        ({"openjdk_17": 17, "default": 17}, [PACKAGES[1]]),
        ({"openjdk_21": 21, "default": 21}, [PACKAGES[0]]),
        ({"openjdk_17": 17, "openjdk_21": 21}, [PACKAGES[0]]),
        ({"default": 21}, [PACKAGES[2]]),
    ],
)
def test_it_takes_the_newest_that_spark_supports(
    tmp_path: Path, versions: dict[str, int], installed: list[str]
) -> None:
    ran = install(tmp_path, **versions)
    assert (ran.returncode, ran.stdout.strip()) == (0, str(tmp_path / "jvm" / "new")), ran.stderr
    assert (tmp_path / "installed").read_text().split() == installed


def test_what_was_tried_is_named(tmp_path: Path) -> None:
    ran = install(tmp_path, default=11)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"has installed no Java 17 or 21; tried: {' '.join(PACKAGES)}." in ran.stderr
    assert f"none was found through JAVA_HOME, PATH or {tmp_path}/jvm" in ran.stderr
