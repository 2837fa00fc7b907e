"""The connection to a Kafka cluster: brokers, TLS, login and other client properties."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import one_of, secret, text
from helios.model.step import Node
from helios.model.values import Secret, caller, is_secret

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

RESERVED_PROPERTIES = {
    "bootstrap.servers": "name the brokers with .servers(...)",
    "isolation.level": "write .isolation(...)",
    "auto.offset.reset": "write .start(...)",
    "group.id": "leave it out: offsets are kept in the checkpoint and in the target, not by the broker",
    "enable.auto.commit": "leave it out: offsets are kept in the checkpoint and in the target, not by the broker",
    "allow.auto.create.topics": "leave it out: a missing topic is an error",
    "key.deserializer": "write .metadata(...)",
    "value.deserializer": "write .value(...)",
    "acks": "leave it out: a write succeeds only when all replicas in sync have the record",
    "enable.idempotence": "leave it out: retries of the producer write no duplicates",
    "key.serializer": "write .key(...)",
    "value.serializer": "write .value(...)",
    "transactional.id": "leave it out: records are delivered at least once, and not in transactions",
}
"""The client properties that only Helios may set, each with the fix for a user who sets it."""

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""The JAAS login module of each mechanism."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"(?:[A-Za-z][A-Za-z0-9_+]*://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files for TLS, in the PEM format.

    Attributes:
        ca: The trusted certificates; None to trust the certificates that Java trusts.
        certificate: The certificate chain of the client.
        key: The private key of the client.
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
        """The declared files.

        Raises:
            DeclarationError: A certificate is given without its key, or a key without its certificate.
        """
        if (certificate is None) != (key is None):
            raise DeclarationError(
                "tls(): certificate= and key= belong together.", where=caller(), fix="give both, or neither."
            )
        return cls(
            ca=str(ca) if ca is not None else None,
            certificate=str(certificate) if certificate is not None else None,
            key=str(key) if key is not None else None,
            key_password=secret(key_password, "tls(key_password=)") if key_password not in (None, "") else None,
        )


@dataclass(frozen=True, kw_only=True)
class Sasl:
    """A SASL login with a name and a password."""

    mechanism: str
    username: str
    password: Secret = field(repr=False)

    @classmethod
    def of(cls, mechanism: str, username: str, password: str | Secret) -> Self:
        """The declared login.

        Raises:
            DeclarationError: The mechanism is unknown, or the name or the password is missing.
        """
        one_of(mechanism, MECHANISMS, "sasl")
        name = text(username, "sasl(username=)")
        return cls(mechanism=mechanism, username=name, password=secret(password, "sasl(password=)"))


@dataclass(frozen=True, kw_only=True)
class KafkaConnection(Node):
    """The connection of a source or a sink to its cluster.

    Attributes:
        brokers: The addresses of some brokers. Through them the clients find all others.
        login: The SASL login; None without a login.
        encryption: The files for TLS; None without TLS.
        client_settings: More properties of Kafka's clients.
    """

    brokers: tuple[str, ...] = ()
    login: Sasl | None = None
    encryption: Tls | None = None
    client_settings: tuple[tuple[str, str | Secret], ...] = field(default=(), repr=False)

    def servers(self, *addresses: str) -> Self:
        """Sets brokers from which the clients find the cluster: `.servers("broker-1:9092", "broker-2:9092")`.

        Raises:
            DeclarationError: An address is not host:port.
        """
        return replace(self, brokers=broker_addresses(addresses))

    def sasl(self, mechanism: Mechanism, username: str, password: str | Secret) -> Self:
        """Logs in with a name and a password. For other mechanisms, such as OAUTHBEARER, use `.properties`.

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
        """Encrypts the connection. Only the driver reads the files.

        Args:
            ca: A PEM file with the certificates to trust; by default those that Java trusts.
            certificate: A PEM file with the certificate chain of the client, if the brokers ask for it.
            key: A PEM file with the private key of the client (PKCS #8).
            key_password: The password of the private key.
        """
        return replace(self, encryption=Tls.of(ca, certificate, key, key_password))

    def properties(self, properties: Mapping[str, str | Secret]) -> Self:
        """Sets properties of Kafka's clients, by their names in Kafka's documentation. Secrets are never shown.

        Raises:
            DeclarationError: Only Helios may set the property.
        """
        return replace(
            self, client_settings=tuple({**dict(self.client_settings), **client_properties(properties)}.items())
        )

    @property
    def cluster(self) -> str:
        """How error messages name the cluster."""
        return f"Kafka at {', '.join(self.brokers)}"

    @property
    def connection_text(self) -> str:
        """The text of the connection in the plan."""
        tls = "over TLS" if self.encryption is not None else "without TLS"
        login = f", as {self.login.username} ({self.login.mechanism})" if self.login is not None else ""
        return f"brokers {', '.join(self.brokers)}, {tls}{login}"


def topic_name(topic: str, call: str, fix: str) -> str:
    """Returns the name of a topic, if it is valid.

    Args:
        call: The call that takes the name, for the error.

    Raises:
        DeclarationError: The name is empty, '.', '..' or longer than 249 characters, or has a character that is not a
            letter, digit, '.', '_' or '-'.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise DeclarationError(
            f"{call}: a topic has a name of letters, digits, '.', '_' and '-'.", where=caller(), fix=fix
        )
    return topic


def broker_addresses(given: Sequence[str]) -> tuple[str, ...]:
    """The addresses of brokers, checked; one text may have several addresses, separated by commas.

    Raises:
        DeclarationError: An address is not host:port.

    Examples:
        >>> broker_addresses(["a:9092,b:9092", "c:9092"])
        ('a:9092', 'b:9092', 'c:9092')
    """
    addresses = tuple(part.strip() for address in given for part in text(address, "servers()").split(","))
    wrong = next((address for address in addresses if not _is_broker(address)), None)
    if wrong is not None or not addresses:
        raise DeclarationError(
            f"servers({repr(wrong) if addresses else ''}) needs the addresses of brokers.",
            where=caller(),
            fix='write host:port, as in .servers("broker-1:9092", "broker-2:9092").',
        )
    return addresses


def _is_broker(address: str) -> bool:
    match = _BROKER.fullmatch(address)
    return match is not None and int(match["port"]) <= 65535


def client_properties(given: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """The properties of Kafka's clients, checked; a value that may be secret becomes a `Secret`.

    Raises:
        DeclarationError: Only Helios may set a property, or a property is not text.
    """
    for name, value in given.items():
        if name in RESERVED_PROPERTIES:
            fix = f"{RESERVED_PROPERTIES[name]}."
            raise DeclarationError(f"properties(): {name} is set by Helios.", where=caller(), fix=fix)
        if not isinstance(name, str) or not isinstance(value, (str, Secret)):
            raise DeclarationError(
                f"properties(): {name!r} and its value, of type {type(value).__name__}, must both be text.",
                where=caller(),
                fix='write {"fetch.max.bytes": "10485760"}.',
            )
    properties = dict(given)
    for name, value in given.items():
        if isinstance(value, str) and ("jaas" in name or is_secret(name, value)):
            properties[name] = Secret(value)
    return properties
