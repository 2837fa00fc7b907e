"""Finds a Java on which Spark can run. A Java is started only if no file shows its version."""

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

# The supported versions, the preferred one first: all tests run on 17. Spark also supports 21.
SUPPORTED = (17, 21)
# Spark's launcher makes the JVM load this module. A JVM without the module does not start.
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
    "install Java 17 or 21 (Debian and Ubuntu: `apt-get install openjdk-21-jre-headless`, or `openjdk-17-jre-headless` "
    "where there is no 21; macOS: `brew install openjdk@17`; "
    "conda: `conda install -c conda-forge openjdk=17`), or set JAVA_HOME to the folder of a Java 17 or 21."
)
_RUN_SECONDS = 10.0
_VERSION = re.compile(r'\bversion "?([0-9][^"\s]*)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_PROGRAM = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True)
class Java:
    """A Java on this machine.

    Attributes:
        path: The path of the program `java`.
        version: The feature version: 8, 11, 17, 21, ...
        home: The folder of this Java, for JAVA_HOME.
        notice: A message that this Java is used because the Java of JAVA_HOME or PATH does not fit; otherwise None.
    """

    path: Path
    version: int
    home: Path
    notice: str | None = None


@dataclass(frozen=True)
class _Candidate:
    """A folder in which a Java was looked for. `flaw` says why Spark cannot use it; None if Spark can."""

    origin: str
    home: Path
    java: Java | None
    flaw: str | None

    def __str__(self) -> str:
        return f"{self.origin} {self.home} {self.flaw}"


def parse_version(text: str) -> int | None:
    """The feature version in the output of `java -version`, or in a version number.

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
    first, second = parts.groups()
    # Up to Java 8 the feature version is the second number: 1.8.
    return int(second) if first == "1" and second else int(first)


def find_java(*, well_known: Sequence[str] = WELL_KNOWN) -> Java:
    """The Java for Spark. JAVA_HOME comes first, then PATH, then the well-known folders, in which 17 comes before 21.

    A Java that does not fit is skipped. If the Java of JAVA_HOME or PATH is skipped, `notice` says so.

    Args:
        well_known: Glob patterns of Java homes. `~` and `$NAME` are expanded.

    Raises:
        EnvironmentProblem: No Java 17 or 21 was found; the message names each Java that was inspected.
    """
    refused: list[_Candidate] = []
    for candidate in _declared_candidates():
        if candidate.java is not None and candidate.flaw is None:
            return _with_notice(candidate.java, refused)
        refused.append(candidate)
    others = [_candidate(home, "the folder") for home in _homes(well_known)]
    fitting = [candidate.java for candidate in others if candidate.java is not None and candidate.flaw is None]
    if fitting:
        return _with_notice(min(fitting, key=lambda java: SUPPORTED.index(java.version)), refused)
    candidates = _distinct([*refused, *(candidate for candidate in others if candidate.java is not None)])
    reasons = "; ".join(map(str, candidates)) or "JAVA_HOME is not set, and there is no java on PATH"
    raise EnvironmentProblem(f"Spark needs Java 17 or 21, and none was found ({reasons}).", fix=INSTALL)


def environment(java: Java) -> dict[str, str]:
    """The environment variables with which Spark's launcher starts `java`, whatever JAVA_HOME and PATH are now."""
    folder = str(java.path.parent)
    rest = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part and part != folder]
    return {"JAVA_HOME": str(java.home), "PATH": os.pathsep.join([folder, *rest])}


def _declared_candidates() -> Iterator[_Candidate]:
    """Yields the Java of JAVA_HOME, then the Java of PATH. Each is inspected only when the caller asks for it."""
    declared = os.environ.get("JAVA_HOME", "").strip()
    if declared:
        yield _candidate(Path(declared).expanduser(), "JAVA_HOME")
    on_path = shutil.which("java")
    if on_path:
        # /usr/bin/java is a symbolic link, often through other links, to the program in the Java home.
        program = Path(on_path).resolve()
        yield _candidate(program.parent.parent, "PATH", program)


def _homes(well_known: Sequence[str]) -> list[Path]:
    """The folders with a Java that match the patterns. Several links to one folder count as one home."""
    expanded = (os.path.expandvars(os.path.expanduser(pattern)) for pattern in well_known)
    homes: dict[Path, None] = {}
    for pattern in expanded:
        if "$" in pattern:  # a variable that is not set
            continue
        for folder in sorted(glob.glob(pattern)):
            if os.access(Path(folder, "bin", _PROGRAM), os.X_OK):
                homes.setdefault(Path(folder).resolve())
    return list(homes)


def _candidate(home: Path, origin: str, program: Path | None = None) -> _Candidate:
    program = program or home / "bin" / _PROGRAM
    if not program.is_file() or not os.access(program, os.X_OK):
        return _Candidate(origin, home, None, f"has no bin/{_PROGRAM}")
    release = _release(home)
    java = _from_release(release, program, home) or _from_run(program, home)
    if java is None:
        return _Candidate(origin, home, None, "does not answer `java -version`")
    if java.version not in SUPPORTED:
        return _Candidate(origin, home, java, f"is Java {java.version}")
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if modules and NEEDED_MODULE not in modules.group(1).split():
        return _Candidate(origin, home, java, f"is a Java {java.version} without the module {NEEDED_MODULE}")
    return _Candidate(origin, home, java, None)


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _from_release(release: str, program: Path, home: Path) -> Java | None:
    """The Java with the version in the `release` file of its home. The file is read much faster than Java starts."""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    version = parse_version(match.group(1)) if match else None
    return Java(program, version, home) if version is not None else None


def _from_run(program: Path, home: Path) -> Java | None:
    """Starts `java`, which prints its version and its home. `java` may be a wrapper script outside of the home."""
    try:
        completed = subprocess.run(
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
    match = _VERSION.search(completed.stdout)
    version = parse_version(match.group(1)) if match else None
    if completed.returncode != 0 or version is None:
        return None
    reported = _HOME.search(completed.stdout)
    return Java(program, version, Path(reported.group(1)) if reported else home)


def _with_notice(java: Java, refused: Sequence[_Candidate]) -> Java:
    if not refused:
        return java
    return replace(java, notice=f"{'; '.join(map(str, refused))}: using Java {java.version} at {java.home} instead.")


def _distinct(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first candidate of each folder. The folder of JAVA_HOME is usually one of the well-known folders as well."""
    by_folder: dict[Path, _Candidate] = {}
    for candidate in candidates:
        by_folder.setdefault(candidate.home.resolve(), candidate)
    return list(by_folder.values())
