"""What the servers are made of: programs built from Go and npm, and jars, kept in Helios's cache for later runs."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helios.environment import jars, java
from helios.environment.coordinates import NEWEST
from helios.errors import EnvironmentProblem
from tests.services.server import Unavailable

Progress = Callable[[str], None]

INSTALL_COMMAND = "python -m tests.services install"


def cache() -> Path:
    """The folder of all that is installed: `services` in Helios's cache."""
    return jars.cache_folder(NEWEST).parents[1] / "services"


def _not_installed(service: str) -> Unavailable:
    return Unavailable(service, f"not installed: run `{INSTALL_COMMAND} {service}`")


def _run(service: str, command: Sequence[str | Path], **environment: str) -> None:
    """Runs a build at low priority; its last words are the cause if it fails."""
    words = ["nice", "-n", "10", *map(str, command)] if shutil.which("nice") else [*map(str, command)]
    done = subprocess.run(
        words, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise Unavailable(service, f"`{' '.join(map(str, command))}` failed: {tail}")


@dataclass(frozen=True)
class GoProgram:
    """A program built by `go install`.

    Args:
        service: The server it belongs to.
        module: Its Go module.
        version: The pinned version.
    """

    service: str
    module: str
    version: str

    @property
    def _path(self) -> Path:
        return cache() / self.service / self.version / self.module.rpartition("/")[2]

    def find(self) -> Path:
        """The program.

        Raises:
            Unavailable: It was not built yet, or there is no Go to build it.
        """
        if self._path.is_file():
            return self._path
        self._need_go()
        raise _not_installed(self.service)

    def _need_go(self) -> None:
        if shutil.which("go") is None:
            raise Unavailable(self.service, "it is built from Go source, and there is no `go` on PATH")

    def install(self, progress: Progress) -> None:
        if self._path.is_file():
            return
        self._need_go()
        progress(f"building {self.module}@{self.version} with Go (some minutes)")
        _run(self.service, ["go", "install", f"{self.module}@{self.version}"], GOBIN=str(self._path.parent))


@dataclass(frozen=True)
class NpmPackage:
    """A Node program.

    Args:
        service: The server it belongs to.
        package: Its name on npm.
        version: The pinned version.
        script: The file in the package that node runs.
    """

    service: str
    package: str
    version: str
    script: str

    @property
    def _folder(self) -> Path:
        return cache() / self.service / self.version

    @property
    def _path(self) -> Path:
        return self._folder / "node_modules" / self.package / self.script

    def find(self) -> Path:
        """The script.

        Raises:
            Unavailable: It was not installed yet, or there is no node.
        """
        if shutil.which("node") is None:
            raise Unavailable(self.service, "there is no `node` on PATH")
        if not self._path.is_file():
            raise _not_installed(self.service)
        return self._path

    def install(self, progress: Progress) -> None:
        if self._path.is_file():
            return
        if shutil.which("npm") is None:
            raise Unavailable(self.service, "it is a Node program, and there is no `npm` on PATH")
        progress(f"installing {self.package}@{self.version} with npm")
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = ["--no-audit", "--no-fund", "--omit=dev", "--loglevel=error", f"--prefix={self._folder}"]
        _run(self.service, ["npm", "install", *flags, f"{self.package}@{self.version}"])


@dataclass(frozen=True)
class Jars:
    """Pinned jars, fetched flat as Helios's own are.

    Args:
        service: The server they belong to.
        sets: Coordinates; Ivy fetches one classifier of a module at a time, so some are a set of their own.
        components: Rows of `helios.environment.coordinates` that it needs too, shared with Spark's cache.
    """

    service: str
    sets: tuple[tuple[str, ...], ...] = ()
    components: tuple[str, ...] = ()

    @property
    def _folder(self) -> Path:
        return cache() / self.service / "jars"

    def find(self) -> list[Path]:
        """The jars.

        Raises:
            Unavailable: One was not fetched yet.
        """
        if any(jars.missing_jars(wanted, self._folder) for wanted in self.sets) or jars.missing_jars_of(
            self.components, spark_version=NEWEST
        ):
            raise _not_installed(self.service)
        own = [jar for wanted in self.sets for jar in jars.fetch(wanted, self._folder, offline=True)]
        return own + jars.ensure(self.components, spark_version=NEWEST, offline=True)

    def install(self, progress: Progress) -> None:
        try:
            for wanted in self.sets:
                jars.fetch(wanted, self._folder, progress=progress)
            jars.ensure(self.components, spark_version=NEWEST, progress=progress)
        except EnvironmentProblem as error:
            raise Unavailable(self.service, error.what) from error


@dataclass(frozen=True)
class Java:
    """A Java of some version or later; Spark's own one where that is new enough.

    Args:
        service: The server that runs on it.
        least: The oldest feature version that does.
    """

    service: str
    least: int = 17

    def find(self) -> Path:
        """The program.

        Raises:
            Unavailable: There is none.
        """
        if self.least <= min(java.SUPPORTED):
            try:
                return java.find_java().path
            except EnvironmentProblem as error:
                raise Unavailable(self.service, str(error)) from error
        seen = {path: version for path in _javas() if (version := _version(path)) is not None}
        fitting = [path for path, version in seen.items() if version >= self.least]
        if not fitting:
            found = ", ".join(f"{version} at {path}" for path, version in seen.items()) or "none"
            raise Unavailable(self.service, f"it needs Java {self.least} or later; found: {found}")
        return min(fitting, key=lambda path: seen[path])

    def install(self, progress: Progress) -> None:
        self.find()


def _javas() -> list[Path]:
    homes = [home] if (home := os.environ.get("JAVA_HOME")) else []
    for pattern in (*java.WELL_KNOWN, "/opt/*"):
        homes += sorted(glob.glob(os.path.expandvars(os.path.expanduser(pattern))))
    paths = [Path(home, "bin", "java") for home in homes]
    return list(dict.fromkeys(path.resolve() for path in paths if os.access(path, os.X_OK)))


def _version(program: Path) -> int | None:
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=20)
    return java.parse_version(done.stderr + done.stdout) if done.returncode == 0 else None


@dataclass(frozen=True)
class SparkJars:
    """The jars that pyspark ships.

    Args:
        service: The server that is made of them.
    """

    service: str

    def find(self) -> Path:
        """Their folder.

        Raises:
            Unavailable: pyspark is not installed.
        """
        try:
            return jars.installed_spark()[1]
        except EnvironmentProblem as error:
            raise Unavailable(self.service, str(error)) from error

    def install(self, progress: Progress) -> None:
        self.find()


@dataclass(frozen=True)
class PythonModule:
    """A Python package of the development environment.

    Args:
        service: The server it is.
        module: What is imported.
        requirement: What pip installs.
    """

    service: str
    module: str
    requirement: str

    def find(self) -> str:
        """The module's name.

        Raises:
            Unavailable: It is not installed.
        """
        if importlib.util.find_spec(self.module) is None:
            raise Unavailable(self.service, f"not installed: run `pip install '{self.requirement}'`")
        return self.module

    def install(self, progress: Progress) -> None:
        self.find()


@dataclass(frozen=True)
class Archive:
    """An archive in the Maven registry, fetched by the Ivy that pyspark ships, and unpacked.

    Args:
        service: The server that it holds.
        coordinate: `group:artifact:version`.
        extension: Such as `tar.gz`.
        folder: Its one folder.
    """

    service: str
    coordinate: str
    extension: str
    folder: str

    @property
    def _home(self) -> Path:
        return cache() / self.service / self.coordinate.rpartition(":")[2]

    def find(self) -> Path:
        """The folder.

        Raises:
            Unavailable: It was not fetched yet.
        """
        if not (self._home / self.folder).is_dir():
            raise _not_installed(self.service)
        return self._home / self.folder

    def install(self, progress: Progress) -> None:
        if (self._home / self.folder).is_dir():
            return
        ivy = next(iter(sorted(SparkJars(self.service).find().glob("ivy-*.jar"))), None)
        if ivy is None:
            raise Unavailable(self.service, "there is no Ivy among pyspark's jars")
        progress(f"fetching {self.coordinate} (some minutes)")
        self._home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._home, prefix=".fetch-") as work:
            self._fetch(ivy, Path(work))
            [archive] = Path(work).glob("lib/*")
            with tarfile.open(archive) as packed:
                packed.extractall(work, filter="data")
            os.replace(Path(work, self.folder), self._home / self.folder)  # whole, or not there

    def _fetch(self, ivy: Path, work: Path) -> None:
        group, name, version = self.coordinate.split(":")
        kind = f'type="{self.extension}" ext="{self.extension}"'
        (work / "ivy.xml").write_text(
            f'<ivy-module version="2.0"><info organisation="helios" module="tests"/><dependencies>'
            f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false">'
            f'<artifact name="{name}" {kind}/></dependency></dependencies></ivy-module>'
        )
        (work / "settings.xml").write_text(
            f'<ivysettings><settings defaultResolver="registry"/><caches defaultCacheDir="{work}/ivy"/><resolvers>'
            f'<ibiblio name="registry" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
        )
        flags = ["-settings", work / "settings.xml", "-ivy", work / "ivy.xml"]
        retrieved = ["-retrieve", f"{work}/lib/[artifact].[ext]"]
        command = [Java(self.service).find(), "-jar", ivy, *flags, *retrieved]
        _run(self.service, command)


Artifact = GoProgram | NpmPackage | Jars | Java | SparkJars | PythonModule | Archive
