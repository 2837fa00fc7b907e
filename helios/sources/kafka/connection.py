"""Checks of the connection to a Kafka cluster, which sources and sinks declare in the same way."""

from __future__ import annotations

from pathlib import Path

from helios.catalog.keys import is_loopback
from helios.errors import DeclarationError, HeliosError, NotFound
from helios.sources.kafka.client import KafkaConnection


def connection_problems(source: KafkaConnection, label: str) -> list[HeliosError]:
    """The problems of the connection of a source or a sink to its cluster; messages call it `label`."""
    return [*_broker_problems(source, label), *_file_problems(source)]


def _broker_problems(source: KafkaConnection, label: str) -> list[HeliosError]:
    """The problem of missing brokers, or of a password that would be sent without encryption."""
    if not source.brokers:
        return [
            DeclarationError(
                f"{label} names no broker.",
                where=source.origin,
                fix='add .servers("broker-1:9092", "broker-2:9092").',
            )
        ]
    login = source.login
    hosts = {broker: broker.rpartition("://")[2].rpartition(":")[0].strip("[]") for broker in source.brokers}
    remote = [broker for broker, host in hosts.items() if not is_loopback(host)]
    if login is None or login.mechanism != "PLAIN" or source.encryption is not None or not remote:
        return []
    if any(name == "security.protocol" for name, _ in source.client_settings):
        return []
    return [
        DeclarationError(
            f'sasl("PLAIN") to {remote[0]} without TLS: anyone on the network could read the password.',
            where=source.origin,
            fix='add .tls(), or log in with "SCRAM-SHA-512".',
        )
    ]


def _file_problems(source: KafkaConnection) -> list[HeliosError]:
    tls = source.encryption
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key} if tls is not None else {}
    return [
        NotFound(f"tls({name}={path!r}): there is no such file.", where=source.origin, fix="give a file in PEM format.")
        for name, path in files.items()
        if path is not None and not Path(path).is_file()
    ]
