"""Finds a Java that Spark runs on, with as few starts of a JVM as possible."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helios.errors import EnvironmentProblem

# In order of preference: 17 is what everything was tried on, 21 is what Spark documents beside it.
SUPPORTED = (17, 21)
# Spark's launcher adds this module on the command line, and a JVM that was linked without it does not start.
NEEDED_MODULE = "jdk.incubator.vector"
WELL_KNOWN = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "$CONDA_PREFIX",
    "$CONDA_PREFIX/lib/jvm",
)
INSTALL = (
    "install Java 17 (Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`, macOS: `brew install openjdk@17`, "
    "conda: `conda install -c conda-forge openjdk=17`), or point JAVA_HOME at a Java 17 or 21."
)
_RUN_SECONDS = 10.0
_VERSION = re.compile(r'\bversion "?([0-9][^"\s]*)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_PROGRAM = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True)
class Java:
    """A Java on this machine.

    Attributes:
        path: The program.
        version: The feature version: 8, 11, 17, 21, ...
        home: What JAVA_HOME must be for it.
        notice: A note for the user that the Java they asked for does not fit; None if it does.
    """

    path: Path
    version: int
    home: Path
    notice: str | None = None


@dataclass(frozen=True)
class _Candidate:
    """A candidate Java home, and why it does not fit."""

    origin: str
    place: Path
    java: Java | None
    flaw: str | None

    def __str__(self) -> str:
        return f"{self.origin} {self.place} {self.flaw}"


def parse_version(text: str) -> int | None:
    """The feature version in the output of `java -version`, or in a bare version.

    Examples:
        >>> parse_version('openjdk version "17.0.15" 2025-04-15')
        17
        >>> parse_version('java version "1.8.0_392"')
        8
        >>> parse_version('openjdk version "21-ea" 2023-09-19')
        21
        >>> parse_version("no java here") is None
        True
    """
    match = _VERSION.search(text)
    number = match.group(1) if match else text.strip()
    parts = re.match(r"(\d+)(?:\.(\d+))?", number)
    if parts is None:
        return None
    # Up to 8 the feature version came second: 1.8.
    return int(parts.group(2)) if parts.group(1) == "1" and parts.group(2) else int(parts.group(1))


def find_java(*, well_known: Sequence[str] = WELL_KNOWN) -> Java:
    """The Java that Spark is to run on: JAVA_HOME, then PATH, then the well-known folders.

    Args:
        well_known: Globs of Java homes to look in last; `~` and `$NAME` are expanded.

    Returns:
        The first that fits. When JAVA_HOME or PATH had one that does not, `notice` says so.

    Raises:
        EnvironmentProblem: None is a 17 or 21; the message names what was found.
    """
    refused: list[_Candidate] = []
    for seen in _asked_for():
        if seen.java is not None and seen.flaw is None:
            return _with_notice(seen.java, refused)
        refused.append(seen)
    others = [_look(home, "found") for home in _homes(well_known)]
    fitting = [seen.java for seen in others if seen.java is not None and seen.flaw is None]
    if fitting:
        return _with_notice(min(fitting, key=lambda java: SUPPORTED.index(java.version)), refused)
    looked = _distinct([*refused, *(seen for seen in others if seen.java is not None)])
    reasons = "; ".join(str(seen) for seen in looked) or "JAVA_HOME is not set, and there is no java on PATH"
    raise EnvironmentProblem(f"Spark needs Java 17 or 21, and none was found ({reasons}).", fix=INSTALL)


def environment(java: Java) -> dict[str, str]:
    """The environment variables that make Spark's launcher start this Java, whatever JAVA_HOME is."""
    folder = str(java.path.parent)
    rest = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part and part != folder]
    return {"JAVA_HOME": str(java.home), "PATH": os.pathsep.join([folder, *rest])}


def _asked_for() -> Iterator[_Candidate]:
    """The Java of JAVA_HOME, then that of PATH, which is looked up only if the first does not fit."""
    declared = os.environ.get("JAVA_HOME", "").strip()
    if declared:
        yield _look(Path(declared).expanduser(), "JAVA_HOME")
    on_path = shutil.which("java")
    if on_path:
        # /usr/bin/java is a chain of links whose end lies in the home.
        program = Path(on_path).resolve()
        yield _look(program.parent.parent, "PATH", program)


def _homes(well_known: Sequence[str]) -> list[Path]:
    """The existing homes that match, each once: distributions link several names to one folder."""
    expanded = (os.path.expandvars(os.path.expanduser(pattern)) for pattern in well_known)
    homes: dict[Path, None] = {}
    for pattern in expanded:
        for place in sorted(glob.glob(pattern)) if "$" not in pattern else ():
            if os.access(Path(place, "bin", _PROGRAM), os.X_OK):
                homes.setdefault(Path(place).resolve())
    return list(homes)


def _look(home: Path, origin: str, program: Path | None = None) -> _Candidate:
    program = program or home / "bin" / _PROGRAM
    if not program.is_file() or not os.access(program, os.X_OK):
        return _Candidate(origin, home, None, f"has no bin/{_PROGRAM}")
    text = _release(home)
    java = _from_release(text, program, home) or _from_run(program, home)
    if java is None:
        return _Candidate(origin, home, None, "does not answer `java -version`")
    if java.version not in SUPPORTED:
        return _Candidate(origin, home, java, f"is Java {java.version}")
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    if modules and NEEDED_MODULE not in modules.group(1).split():
        return _Candidate(origin, home, java, f"is a Java {java.version} without the module {NEEDED_MODULE}")
    return _Candidate(origin, home, java, None)


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _from_release(text: str, program: Path, home: Path) -> Java | None:
    """The version from the home's `release` file: 0.1 ms, where starting Java takes 50 to 500 ms."""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    version = parse_version(match.group(1)) if match else None
    return Java(program, version, home) if version is not None else None


def _from_run(program: Path, home: Path) -> Java | None:
    """The version from running Java, which also gives the home behind a wrapper script."""
    try:
        done = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_RUN_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    version = parse_version(match.group(1)) if match else None
    if done.returncode != 0 or version is None:
        return None
    reported = _HOME.search(done.stdout)
    return Java(program, version, Path(reported.group(1)) if reported else home)


def _with_notice(java: Java, refused: Sequence[_Candidate]) -> Java:
    if not refused:
        return java
    return replace(java, notice=f"{'; '.join(map(str, refused))}: using Java {java.version} at {java.home} instead.")


def _distinct(seen: Sequence[_Candidate]) -> list[_Candidate]:
    """One entry per place: a home that JAVA_HOME names usually lies in a well-known folder too."""
    first: dict[Path, _Candidate] = {}
    for candidate in seen:
        first.setdefault(candidate.place.resolve(), candidate)
    return list(first.values())
