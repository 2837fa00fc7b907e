"""The replication slot from which Debezium reads a PostgreSQL server; `helios doctor` checks the slot."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import one_of, text
from helios.model.values import Secret, caller

DEFAULT_PORT = 5432
TLS_MODES = ("disable", "prefer", "require", "verify-full")
"""PostgreSQL's modes of TLS. `prefer` and `require` do not check the server's certificate."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_NAME = re.compile(r"[a-z0-9_]{1,63}")
_EXAMPLE = 'write .slot("debezium", "postgresql://helios@db-1:5432/shop", password=os.environ["PGPASSWORD"]).'


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A replication slot, and the PostgreSQL server that has it.

    Attributes:
        name: Debezium's `slot.name`.
        database: The database that Debezium reads.
        user: The user who lists the slots; every user may do so.
        tls: PostgreSQL's mode of TLS, one of `TLS_MODES`.
        ca_file: A file with trusted certificates; None to trust the certificates that this machine trusts.
    """

    name: str
    host: str
    port: int
    database: str
    user: str
    password: Secret | None = field(default=None, repr=False)
    tls: str = "verify-full"
    ca_file: str | None = None

    @property
    def address(self) -> str:
        """The server and the database, without the user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"

    @classmethod
    def of(cls, name: str, database: str, password: str | Secret | None) -> Self:
        """The declared slot.

        Args:
            database: The address, as `postgresql://user@host:port/database`.
            password: The password; it may also be part of the address.

        Raises:
            DeclarationError: PostgreSQL does not allow the name, or the address is not that of a database.

        Examples:
            >>> Slot.of("debezium", "postgresql://helios@db-1/shop", "secret").tls
            'verify-full'
        """
        if _NAME.fullmatch(text(name, "slot()")) is None:
            raise DeclarationError(
                f"slot(): {name!r} is not a slot name: a name has up to 63 lower-case letters, digits and underscores.",
                where=caller(),
                fix="write Debezium's slot.name, which is `debezium` by default.",
            )
        try:
            parts = urlsplit(text(database, "slot()"))
            host, port, path = parts.hostname, parts.port or DEFAULT_PORT, unquote(parts.path.strip("/"))
        except ValueError:
            host, port, path, parts = None, DEFAULT_PORT, "", urlsplit("")
        if parts.scheme not in ("postgresql", "postgres") or not host or not path or not parts.username:
            # The address itself is not shown: it may have a password.
            raise DeclarationError(
                "slot(): the address is not of the form postgresql://user@host:port/database.",
                where=caller(),
                fix=_EXAMPLE,
            )
        options = _options(parts.query)
        if password is None and parts.password:
            password = unquote(parts.password)
        return cls(
            name=name,
            host=host,
            port=port,
            database=path,
            user=unquote(parts.username),
            password=Secret(password) if isinstance(password, str) else password,
            tls=options.get("sslmode", "prefer" if host in LOOPBACK else "verify-full"),
            ca_file=options.get("sslrootcert"),
        )


def _options(query: str) -> dict[str, str]:
    """The options in the query of an address. Raises a DeclarationError if an option or its value is unknown."""
    known = ("sslmode", "sslrootcert")
    options = dict(parse_qsl(query))
    for key in options:
        if key not in known:
            raise DeclarationError(
                f"slot(): {key!r} is not an option of the address. {near_miss(key, known)}",
                where=caller(),
                fix=_EXAMPLE,
            )
    if "sslmode" in options:
        one_of(options["sslmode"], TLS_MODES, "slot(): sslmode")
    return options
