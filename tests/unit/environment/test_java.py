"""Finding a Java among programs that really are there: scripts that answer as the JVMs do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from helios.environment import java as module
from helios.environment.java import Java, environment, find_java, parse_version
from helios.errors import EnvironmentProblem

pytestmark = pytest.mark.promise("doctor")

OUTPUTS = {
    'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)': 17,
    'openjdk version "25.0.3" 2026-04-21 LTS': 25,
    'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)': 8,
    'openjdk version "21-ea" 2023-09-19': 21,
    'openjdk version "11.0.2" 2019-01-15': 11,
    'openjdk version "9"': 9,
    "openjdk 17.0.1 2021-10-19": None,
    'Picked up JAVA_TOOL_OPTIONS: -Dversion=3\nopenjdk version "17.0.9" 2023-10-17': 17,
    "The operation couldn't be completed. Unable to locate a Java Runtime.": None,
    "": None,
}
MODULES = "java.base jdk.incubator.vector jdk.unsupported"


def fake(home: Path, output: str, *, status: int = 0, release: str | None = None) -> Path:
    """A Java home whose program prints `output` to stderr, as JVMs do, and notes that it was started."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n: > '{home}/started'\n/bin/cat >&2 <<'END'\n{output}\nEND\nexit {status}\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def version(number: str) -> str:
    return f'openjdk version "{number}" 2025-01-01'


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.mark.parametrize(("output", "expected"), OUTPUTS.items())
def test_the_version_is_read_from_what_jvms_print(output: str, expected: int | None) -> None:
    assert parse_version(output) == expected


@pytest.mark.parametrize(("text", "expected"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("24-beta", 24)])
def test_the_version_is_read_from_a_bare_number(text: str, expected: int) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize("number", ["17.0.15", "21.0.2"])
def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    home = fake(tmp_path / "home", version(number))
    other = fake(tmp_path / "other", version("17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert find_java(well_known=()) == Java(home / "bin" / "java", int(number[:2]), home)
    assert not (other / "started").exists()


def test_a_release_file_saves_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "home", version("11.0.2"), release='IMPLEMENTOR="X"\nJAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java(well_known=()).version == 17
    assert not (home / "started").exists()


def test_a_release_file_without_a_version_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "home", version("17.0.2"), release='IMPLEMENTOR="X"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java(well_known=()).version == 17
    assert (home / "started").exists()


def test_a_link_on_path_leads_to_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "jvm", version("17.0.2"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java(well_known=()) == Java(home / "bin" / "java", 17, home)


def test_a_wrapper_script_on_path_tells_the_home_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = f"Property settings:\n    java.home = {tmp_path / 'real home'}\n\n{version('21.0.2')}"
    shims = fake(tmp_path / "shims", wrapped)
    monkeypatch.setenv("PATH", str(shims / "bin"))
    assert find_java(well_known=()).home == tmp_path / "real home"


@pytest.mark.parametrize("number", ["25.0.3", "11.0.2", "1.8.0_392"])
def test_a_wrong_java_home_falls_back_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    wrong = fake(tmp_path / "wrong", version(number))
    right = fake(tmp_path / "jvm" / "seventeen", version("17.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(wrong))
    found = find_java(well_known=(str(tmp_path / "jvm" / "*"),))
    assert found.home == right
    assert found.notice is not None
    assert f"JAVA_HOME {wrong} is Java {parse_version(number)}" in found.notice
    assert f"using Java 17 at {right}" in found.notice


def test_a_java_home_that_is_no_home_falls_back_to_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = fake(tmp_path / "right", version("21.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(right / "bin"))
    found = find_java(well_known=())
    assert found.home == right
    assert "gone has no bin/java" in str(found.notice)


def test_among_well_known_homes_17_is_preferred(tmp_path: Path) -> None:
    fake(tmp_path / "a-21", version("21.0.1"))
    fake(tmp_path / "b-25", version("25.0.1"))
    wanted = fake(tmp_path / "c-17", version("17.0.1"))
    (tmp_path / "d-no-java").mkdir()
    found = find_java(well_known=(str(tmp_path / "*"),))
    assert (found.home, found.notice) == (wanted, None)


def test_a_well_known_place_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "env" / "lib" / "jvm", version("17.0.1"))
    monkeypatch.setenv("SOME_PREFIX", str(tmp_path / "env"))
    assert find_java(well_known=("$NOT_SET_AT_ALL/*", "$SOME_PREFIX/lib/jvm")).home == home


def test_a_jvm_without_the_module_that_spark_adds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = fake(tmp_path / "small", "", release='JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.unsupported"\n')
    full = fake(tmp_path / "full", "", release=f'JAVA_VERSION="21.0.1"\nMODULES="{MODULES}"\n')
    monkeypatch.setenv("JAVA_HOME", str(small))
    monkeypatch.setenv("PATH", str(full / "bin"))
    found = find_java(well_known=())
    assert found.home == full
    assert "without the module jdk.incubator.vector" in str(found.notice)


def test_nothing_that_fits_names_what_was_found_and_how_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eleven = fake(tmp_path / "jvm" / "eleven", version("11.0.2"))
    new = fake(tmp_path / "jvm" / "new", version("25.0.3"))
    monkeypatch.setenv("JAVA_HOME", str(new))
    with pytest.raises(EnvironmentProblem) as raised:
        find_java(well_known=(str(tmp_path / "jvm" / "*"),))
    text = str(raised.value)
    assert f"JAVA_HOME {new} is Java 25; the folder {eleven} is Java 11)" in text
    assert text.count(str(new)) == 1
    assert "17 or 21" in text
    for remedy in ("apt-get install openjdk-21-jre-headless", "brew install", "conda install"):
        assert remedy in text
    assert "\n" not in text


def test_no_java_at_all_says_so() -> None:
    with pytest.raises(EnvironmentProblem, match="JAVA_HOME is not set, and there is no java on PATH"):
        find_java(well_known=())


@pytest.mark.parametrize(("output", "status"), [(version("17.0.1"), 1), ("Unable to locate a Java Runtime.", 0)])
def test_a_java_that_does_not_answer_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, status: int
) -> None:
    monkeypatch.setenv("PATH", str(fake(tmp_path / "stub", output, status=status) / "bin"))
    with pytest.raises(EnvironmentProblem, match="does not answer `java -version`"):
        find_java(well_known=())


def test_a_java_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "home", "")
    (home / "bin" / "java").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(module, "_RUN_SECONDS", 0.2)
    with pytest.raises(EnvironmentProblem, match="does not answer"):
        find_java(well_known=())


def test_the_environment_starts_that_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = fake(tmp_path / "right", version("17.0.1"))
    wrong = fake(tmp_path / "wrong", version("25.0.1"))
    monkeypatch.setenv("PATH", f"{wrong / 'bin'}:{right / 'bin'}")
    entries = environment(Java(right / "bin" / "java", 17, right))
    assert entries["JAVA_HOME"] == str(right)
    assert entries["PATH"] == f"{right / 'bin'}:{wrong / 'bin'}"
    assert shutil.which("java", path=entries["PATH"]) == str(right / "bin" / "java")


def test_the_java_of_this_machine_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = find_java()
    said = subprocess.run([str(found.path), "-version"], capture_output=True, text=True, check=True).stderr
    assert parse_version(said) == found.version
    assert (found.home / "bin" / "java").exists()
