"""PostgreSQL with logical replication, from the machine's own packages."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.services.artifacts import Progress
from tests.services.server import Server, StartFailed, Unavailable

USER = "postgres"


@dataclass(frozen=True)
class Programs:
    """The programs of PostgreSQL, as the system's packages install them."""

    service: str

    def find(self) -> Path:
        """Their folder.

        Raises:
            Unavailable: There are none.
        """
        folders = [Path(found) for found in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
        on_path = shutil.which("postgres")
        folders += [Path(on_path).resolve().parent] if on_path is not None else []
        found = next((folder for folder in folders if (folder / "initdb").is_file()), None)
        if found is None:
            raise Unavailable(self.service, "not installed: run `apt-get install postgresql`")
        if shutil.which("psql") is None:
            raise Unavailable(self.service, "there is no `psql` on PATH")
        return found

    def install(self, progress: Progress) -> None:
        self.find()


PROGRAMS = Programs("postgres")
ARTIFACTS = (PROGRAMS,)


class Postgres(Server):
    """A PostgreSQL server with `wal_level=logical`, whose data outlives a restart.

    It does not run as root: the tests' own folders, which nobody else may enter, are not for its data.
    """

    service = "postgres"

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._home = Path(tempfile.mkdtemp(prefix="helios-postgres-data-"))
        if os.getuid() == 0:
            shutil.chown(self._home, USER)

    @property
    def data(self) -> Path:
        return self._home / "data"

    def _as_user(self, command: Sequence[str | Path]) -> list[str | Path]:
        if os.getuid() != 0:
            return list(command)
        user = pwd.getpwnam(USER)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]

    def prepare(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        command = [PROGRAMS.find() / "initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]
        # Not in the tests' folder, which the user of the server may not enter.
        done = subprocess.run(
            list(map(str, self._as_user(command))), cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise StartFailed(f"initdb failed: {done.stderr[-800:]}")

    def command(self) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._home),
            "wal_level": "logical",
            "max_wal_size": "256MB",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return self._as_user([PROGRAMS.find() / "postgres", "-D", self.data, *flags])

    def ready(self) -> bool:
        return self._psql("SELECT 1").returncode == 0

    def _psql(self, text: str) -> subprocess.CompletedProcess[str]:
        at = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        return subprocess.run(
            ["psql", *at, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def sql(self, text: str) -> str:
        """Runs statements, each a transaction of its own unless they say otherwise; returns what they print.

        Raises:
            RuntimeError: The server refuses one.
        """
        done = self._psql(text)
        if done.returncode:
            raise RuntimeError(f"{done.stderr.strip()} in {text[:400]}")
        return done.stdout.strip()

    def addresses(self) -> dict[str, str]:
        return {"host": "127.0.0.1", "port": str(self.port), "user": USER, "database": "postgres"}

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._home, ignore_errors=True)
