"""Fetches into a cache, once, the jars that pipelines need besides Spark's own.

Environment variables: HELIOS_CACHE is the folder of the cache. HELIOS_OFFLINE=1 forbids fetching. HELIOS_MAVEN_URL is a
mirror of the Maven registry.

The jars are fetched by the Ivy that is among pyspark's jars, as plain files without poms. All versions are pinned, so
Ivy resolves no dependencies. A half-filled `~/.m2` or `~/.ivy2` cannot interfere.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs

from helios.environment.coordinates import coordinates, minor, parse, pip_command
from helios.environment.java import environment, find_java
from helios.errors import EnvironmentProblem

Progress = Callable[[str], None]

COMMAND = "helios jars"
STALL_SECONDS = 25.0
LOCK_SECONDS = 900.0
_POLL_SECONDS = 0.1
_TRUE_VALUES = ("1", "true", "yes", "on")

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="registry"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="8000" readTimeout="20000"/>
  </timeout-constraints>
  <caches defaultCacheDir="${{helios.fetch}}/ivy" repositoryCacheDir="${{helios.fetch}}"
    artifactPattern="lib/[organisation]_[artifact]-[revision](-[classifier]).[ext]"/>
  <resolvers>
    <ibiblio name="registry" m2compatible="true" usepoms="false" timeoutConstraint="bounded"{root}/>
  </resolvers>
</ivysettings>
"""
_IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="helios" module="jars"/>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
# Patterns that find the cause of a failure in Ivy's log. The most specific patterns come first.
_CAUSE_PATTERNS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\s*(Host \S+ not found)\.",
        r"^\s*(Server access error.*)$",
        r"^.*(invalid (?:sha1|md5|SHA-\d+).*)$",
        r"^.*(No space left on device.*)$",
        r"^\s*\[FAILED\s*\]\s*(.*)$",
        r"^\s*(module not found: .*)$",
        r"^.*((?:Exception|Error)\b.*)$",
    )
)


def installed_spark() -> tuple[str, Path]:
    """The version of the installed pyspark, and the folder of its jars; pyspark is not imported.

    Raises:
        EnvironmentProblem: pyspark is not installed, or the installed one (pyspark-client) has no jars.
    """
    module_spec = importlib.util.find_spec("pyspark")
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        version = None
    if module_spec is None or version is None or not module_spec.submodule_search_locations:
        raise EnvironmentProblem("pyspark is not installed in this Python.", fix=f"{pip_command()}.")
    jars = Path(next(iter(module_spec.submodule_search_locations)), "jars")
    if not jars.is_dir():
        raise EnvironmentProblem(f"pyspark {version} has no folder of jars at {jars}.", fix=f"{pip_command()}.")
    return version, jars


def cache_folder(spark_version: str) -> Path:
    """The folder of the jars for a Spark version, in $HELIOS_CACHE or in the user's cache folder."""
    declared = os.environ.get("HELIOS_CACHE", "").strip()
    root = Path(declared).expanduser().absolute() if declared else Path(platformdirs.user_cache_dir("helios"))
    return root / "jars" / minor(spark_version)


def missing_jars_of(components: Iterable[str], *, spark_version: str) -> list[str]:
    """The coordinates of the components' jars that are missing or damaged in the cache.

    Raises:
        EnvironmentProblem: No jars are known for this Spark or component.
    """
    return missing_jars(coordinates(spark_version, components), cache_folder(spark_version))


def ensure(
    components: Iterable[str], *, spark_version: str, offline: bool = False, progress: Progress | None = None
) -> list[Path]:
    """The local jars of the components. Jars that the cache does not have are fetched first.

    Several processes may call this at the same time. An interrupted fetch leaves only complete jars in the cache.

    Args:
        components: Names of components in `helios.environment.coordinates.COMPONENTS`.
        spark_version: The Spark that will load them, such as "4.1.4".
        offline: Never fetch; HELIOS_OFFLINE=1 has the same effect.
        progress: Called with a line for each wait and each fetched jar.

    Raises:
        EnvironmentProblem: A jar is missing and cannot be fetched; the message has the reason and the fix.
    """
    wanted = coordinates(spark_version, components)
    return fetch(wanted, cache_folder(spark_version), offline=offline, progress=progress)


def fetch(
    wanted: Sequence[str], folder: Path, *, offline: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Like `ensure`, but for given coordinates and a given folder."""
    missing = missing_jars(wanted, folder)
    if missing:
        if offline or os.environ.get("HELIOS_OFFLINE", "").strip().lower() in _TRUE_VALUES:
            raise _missing_jars_problem(
                missing, folder, f"fetching is switched off ({'offline' if offline else 'HELIOS_OFFLINE'})"
            )
        _fetch_locked(wanted, folder, progress or (lambda _: None))
    return [folder / parse(coordinate).file_name for coordinate in wanted]


def missing_jars(wanted: Sequence[str], folder: Path) -> list[str]:
    """The coordinates whose jars are missing or damaged in a folder."""
    # is_zipfile reads only the end of each jar. That is enough: a jar was read in full before it entered the cache.
    return [coordinate for coordinate in wanted if not zipfile.is_zipfile(folder / parse(coordinate).file_name)]


def _fetch_locked(wanted: Sequence[str], folder: Path, progress: Progress) -> None:
    from filelock import FileLock, Timeout  # imported only here, since it imports asyncio

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress(f"waiting for another process that fetches jars into {folder}")
            lock.acquire(timeout=LOCK_SECONDS)
        try:
            missing = missing_jars(wanted, folder)
            if missing:
                _fetch(missing, folder, progress)
        finally:
            lock.release()
    except Timeout:
        raise _missing_jars_problem(
            missing_jars(wanted, folder),
            folder,
            f"another process has held {folder / '.lock'} for {LOCK_SECONDS:.0f} s",
            fix=f"end that process, then run `{COMMAND}`.",
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"The jars cannot be stored in {folder}: {error}.",
            fix=f"set HELIOS_CACHE to a folder that you can write to, then run `{COMMAND}`.",
        ) from error


def _fetch(missing: Sequence[str], folder: Path, progress: Progress) -> None:
    """Fetches jars into a working folder, and moves the complete ones into the cache. The caller holds the lock."""
    _remove_working_folders(folder)
    progress(f"fetching {len(missing)} jar{'s' if len(missing) > 1 else ''}, once, into {folder}")
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        cause = _run_ivy(missing, work, progress)
        damaged = []
        for coordinate in missing:
            name = parse(coordinate).file_name
            if _is_intact(work / "lib" / name):
                os.replace(work / "lib" / name, folder / name)
            elif (work / "lib" / name).exists():
                damaged.append(f"{name} arrived damaged")
    finally:
        _remove_working_folders(folder)
    still_missing = missing_jars(missing, folder)
    if still_missing:
        raise _missing_jars_problem(still_missing, folder, "; ".join(damaged) or cause)


def _remove_working_folders(folder: Path) -> None:
    """Removes all working folders, also those of killed processes. Only the lock's holder uses a working folder."""
    for leftover in folder.glob(".fetch-*"):
        # The Ivy of a killed process may still write into its folder. A later fetch then removes the rest.
        shutil.rmtree(leftover, ignore_errors=True)


def _run_ivy(missing: Sequence[str], work: Path, progress: Progress) -> str:
    """Runs Ivy until it ends or stalls. Returns the likely cause, in case jars are missing afterwards."""
    java = find_java()
    _, jars = installed_spark()
    ivy = next(iter(sorted(jars.glob("ivy-*.jar"))), None)
    if ivy is None:
        raise EnvironmentProblem(f"There is no Ivy among pyspark's jars in {jars}.", fix=f"{pip_command()}.")
    registry = os.environ.get("HELIOS_MAVEN_URL", "").strip()
    root = f" root={quoteattr(registry.rstrip('/') + '/')}" if registry else ""
    (work / "settings.xml").write_text(_IVY_SETTINGS.format(root=root), encoding="utf-8")
    (work / "ivy.xml").write_text(_ivy_module(missing), encoding="utf-8")
    flags = ["-XX:TieredStopAtLevel=1", f"-Dhelios.fetch={work}", f"-Divy.default.ivy.user.dir={work}"]
    arguments = ["-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")]
    command = [str(java.path), *flags, "-cp", str(ivy), "org.apache.ivy.Main", *arguments]
    log = work / "ivy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment(java)},
            start_new_session=True,  # Ctrl-C reaches only this process, which ends Ivy and then cleans up
        )
        try:
            stalled = _wait_for_ivy(process, work, log, progress)
        finally:
            process.kill()
            process.wait()
    if stalled:
        return f"nothing arrived for {STALL_SECONDS:.0f} s"
    return _cause_in_log(log.read_text(encoding="utf-8", errors="replace"))


def _wait_for_ivy(process: subprocess.Popen[bytes], work: Path, log: Path, progress: Progress) -> bool:
    """Waits until Ivy ends or stalls. Returns True if it has stalled."""
    last_size = -1
    last_progress = time.monotonic()
    reported: set[str] = set()
    while True:
        ended = process.poll() is not None
        for jar in sorted(work.glob("lib/*.jar")):
            if jar.name not in reported:
                reported.add(jar.name)
                progress(f"fetched {jar.name} ({jar.stat().st_size / 1e6:.1f} MB)")
        if ended:
            return False
        size = _downloaded(work, log)
        if size != last_size:
            last_size, last_progress = size, time.monotonic()
        elif time.monotonic() - last_progress > STALL_SECONDS:
            return True
        time.sleep(_POLL_SECONDS)


def _downloaded(work: Path, log: Path) -> int:
    """A number that grows with every file and byte that arrives. The log is not counted."""
    total = 0
    for folder, _, names in os.walk(work):
        for name in names:
            path = Path(folder, name)
            if path != log and path.exists():
                total += 1 + path.stat().st_size
    return total


def _ivy_module(missing: Sequence[str]) -> str:
    return _IVY_MODULE.format(dependencies="\n".join(map(_dependency, missing)))


def _dependency(coordinate: str) -> str:
    jar = parse(coordinate)
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    name = quoteattr(jar.artifact)
    return (
        f"    <dependency org={quoteattr(jar.group)} name={name} rev={quoteattr(jar.version)} "
        f'transitive="false"><artifact name={name} type="jar" ext="jar"{classifier}/></dependency>'
    )


def _is_intact(path: Path) -> bool:
    """True if all entries of a jar can be read. This is checked once, before the jar enters the cache."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error):
        return False


def _cause_in_log(output: str) -> str:
    for pattern in _CAUSE_PATTERNS:
        match = pattern.search(output)
        if match:
            line = re.sub(r"//[^/@\s]+@", "//***@", match.group(1).strip())
            return line if len(line) <= 240 else f"{line[:239]}…"
    return "Ivy named no reason"


def _missing_jars_problem(
    missing: Sequence[str],
    folder: Path,
    cause: str,
    fix: str = f"run `{COMMAND}` on a machine with network, and copy the folder that it fills to this machine.",
) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Missing jar{'s' if len(missing) > 1 else ''} {', '.join(missing)}: not in the cache {folder}, and {cause}.",
        fix=fix,
    )
