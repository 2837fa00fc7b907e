"""How Kafka's clients connect: brokers, TLS, logins and other properties."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import one_of, text
from helios.model.step import Node
from helios.model.values import Secret, caller, is_secret

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

OWN = {
    "bootstrap.servers": "name the brokers with .servers(...)",
    "isolation.level": "write .isolation(...)",
    "auto.offset.reset": "write .start(...)",
    "group.id": "leave it out: offsets are kept in the checkpoint and in the target, not by the broker",
    "enable.auto.commit": "leave it out: offsets are kept in the checkpoint and in the target, not by the broker",
    "allow.auto.create.topics": "leave it out: a topic that is not there is an error",
    "key.deserializer": "write .metadata(...)",
    "value.deserializer": "write .value(...)",
    "acks": "leave it out: a record is written once all replicas in sync have it",
    "enable.idempotence": "leave it out: retries of the producer write no duplicates",
    "key.serializer": "write .key(...)",
    "value.serializer": "write .value(...)",
    "transactional.id": "leave it out: records are delivered at least once, and not in transactions",
}
"""Client properties that Helios sets, and what to do instead."""

LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"(?:[A-Za-z][A-Za-z0-9_+]*://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Files in the PEM format.

    Attributes:
        ca: The certificates that are trusted; None for those of Java.
        certificate: The client's own certificate chain.
        key: Its private key.
        key_password: The password of that key.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: Secret | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        ca: str | Path | None,
        certificate: str | Path | None,
        key: str | Path | None,
        key_password: str | Secret | None,
    ) -> Self:
        """The files as they were given.

        Raises:
            DeclarationError: A certificate without its key, or a key without its certificate.
        """
        if (certificate is None) != (key is None):
            raise DeclarationError(
                "tls(): certificate= and key= belong together.", where=caller(), fix="give both, or neither."
            )
        files = [str(file) if file is not None else None for file in (ca, certificate, key)]
        secret = Secret(key_password) if isinstance(key_password, str) else key_password
        return cls(ca=files[0], certificate=files[1], key=files[2], key_password=secret)


@dataclass(frozen=True, kw_only=True)
class Sasl:
    """A login by name and password."""

    mechanism: str
    username: str
    password: Secret = field(repr=False)

    @classmethod
    def of(cls, mechanism: str, username: str, password: str | Secret) -> Self:
        """The login as it was given.

        Raises:
            DeclarationError: The mechanism is unknown, or name or password are missing.
        """
        one_of(mechanism, MECHANISMS, "sasl")
        secret = password if isinstance(password, Secret) else Secret(text(password, "sasl(password=)"))
        return cls(mechanism=mechanism, username=text(username, "sasl(username=)"), password=secret)


@dataclass(frozen=True, kw_only=True)
class KafkaConnection(Node):
    """How a source or a sink reaches its cluster.

    Attributes:
        brokers: The addresses from which the cluster is found.
        login: The SASL login.
        encryption: The files of TLS; None without TLS.
        client: More properties of Kafka's clients.
    """

    brokers: tuple[str, ...] = ()
    login: Sasl | None = None
    encryption: Tls | None = None
    client: tuple[tuple[str, str | Secret], ...] = field(default=(), repr=False)

    def servers(self, *addresses: str) -> Self:
        """The brokers from which the cluster is found: `.servers("broker-1:9092", "broker-2:9092")`.

        Raises:
            DeclarationError: An address is not host:port.
        """
        return replace(self, brokers=broker_addresses(addresses))

    def sasl(self, mechanism: Mechanism, username: str, password: str | Secret) -> Self:
        """Logs in with a name and a password; others, such as OAUTHBEARER, go into `.properties`.

        Args:
            mechanism: "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512".
            username: The name.
            password: The password, such as `os.environ["KAFKA_PASSWORD"]`; it is never shown.
        """
        return replace(self, login=Sasl.of(mechanism, username, password))

    def tls(
        self,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        key_password: str | Secret | None = None,
    ) -> Self:
        """Encrypts the connection; the files are read by the driver alone.

        Args:
            ca: A PEM file with the certificates to trust; by default those that Java trusts.
            certificate: A PEM file with the client's own certificate chain, where the brokers ask for one.
            key: A PEM file with its private key (PKCS #8).
            key_password: The password of that key.
        """
        return replace(self, encryption=Tls.of(ca, certificate, key, key_password))

    def properties(self, properties: Mapping[str, str | Secret]) -> Self:
        """Properties of Kafka's clients, by their names in Kafka's documentation; secrets among them are never shown.

        Raises:
            DeclarationError: Helios sets the property itself.
        """
        return replace(self, client=tuple({**dict(self.client), **client_properties(properties)}.items()))

    @property
    def cluster(self) -> str:
        """The cluster as messages name it."""
        return f"Kafka at {', '.join(self.brokers)}"

    @property
    def connected(self) -> str:
        """The connection as the plan shows it."""
        tls = "over TLS" if self.encryption is not None else "without TLS"
        login = f", as {self.login.username} ({self.login.mechanism})" if self.login is not None else ""
        return f"brokers {', '.join(self.brokers)}, {tls}{login}"


def topic_name(topic: str, what: str, fix: str) -> str:
    """The name of a topic.

    Args:
        topic: The name.
        what: What it is given to.
        fix: What to write instead.

    Raises:
        DeclarationError: It has other signs than letters, digits, '.', '_' and '-'.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise DeclarationError(
            f"{what}: topics are named by letters, digits, '.', '_' and '-'.", where=caller(), fix=fix
        )
    return topic


def broker_addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Addresses of brokers; one text may hold several, with commas between them.

    Raises:
        DeclarationError: One is not host:port.

    Examples:
        >>> broker_addresses(["a:9092,b:9092", "c:9092"])
        ('a:9092', 'b:9092', 'c:9092')
    """
    addresses = tuple(part.strip() for address in given for part in text(address, "servers()").split(","))
    wrong = next(
        (address for address in addresses if not (at := _BROKER.fullmatch(address)) or int(at["port"]) > 65535), None
    )
    if wrong is not None or not addresses:
        raise DeclarationError(
            f"servers({repr(wrong) if addresses else ''}): that is not the address of a broker.",
            where=caller(),
            fix='write host:port, as in .servers("broker-1:9092", "broker-2:9092").',
        )
    return addresses


def client_properties(given: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """Properties of Kafka's clients; what may be secret becomes so.

    Raises:
        DeclarationError: One is set by Helios, or is no text.
    """
    for name, value in given.items():
        if name in OWN:
            raise DeclarationError(f"properties(): {name} is set by Helios.", where=caller(), fix=f"{OWN[name]}.")
        if not isinstance(name, str) or not isinstance(value, (str, Secret)):
            raise DeclarationError(
                f"properties(): {name!r} and its value, of type {type(value).__name__}, must both be text.",
                where=caller(),
                fix='write {"fetch.max.bytes": "10485760"}.',
            )
    return {name: Secret(v) if isinstance(v, str) and _hides(name, v) else v for name, v in given.items()}


def _hides(name: str, value: str) -> bool:
    return "jaas" in name or is_secret(name, value)
