"""A schema registry, asked over HTTP: what it knows, what it refuses, and what is no registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helios.errors import InputError, NotFound, Origin, RunError
from helios.sources.kafka.registry import authorization, get_json, latest_schema
from helios.sources.kafka.values import Registry as Declared
from tests.kafka.registry import Registry
from tests.services.server import Port

WHERE = Origin("script.py", 1)
SCHEMA = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


def declared(registry: Registry, login: tuple[str, str] | None = None) -> Declared:
    return Declared.of(f"{registry.url}/", login, None)


def test_the_latest_schema_of_a_subject(registry: Registry) -> None:
    registry.register("orders", SCHEMA)
    id = registry.register("orders", {**SCHEMA, "doc": "more"})
    found = latest_schema(declared(registry), "orders", WHERE)
    assert (found.id, found.version) == (id, 2)
    assert '"doc": "more"' in found.schema
    assert get_json(declared(registry), "/subjects", WHERE) == ["orders"]


def test_what_a_registry_does_not_know_or_refuses(registry: Registry) -> None:
    with pytest.raises(NotFound, match=r"script.py:1: .* has no subject 'orders'"):
        latest_schema(declared(registry), "orders", WHERE)
    registry.register("listed", SCHEMA, references=[{"name": "B", "subject": "b", "version": 1}])
    with pytest.raises(InputError, match="refers to other schemas"):
        latest_schema(declared(registry), "listed", WHERE)
    registry.register("proto", SCHEMA, schemaType="PROTOBUF")
    with pytest.raises(InputError, match="schemas of PROTOBUF"):
        latest_schema(declared(registry), "proto", WHERE)
    registry.closed = True
    with pytest.raises(RunError, match=r"answers 401: Unauthorized\. Fix: give registry_login"):
        get_json(declared(registry), "/subjects", WHERE)
    login = declared(registry, (registry.user, registry.password))
    assert get_json(login, "/subjects", WHERE) == ["listed", "proto"]
    assert registry.password not in f"{login!r}"
    assert authorization(declared(registry)) == ""
    for status in (302, 500):  # a redirect would take the login elsewhere
        registry.answer = status
        with pytest.raises(RunError, match=f"answers {status}"):
            get_json(login, "/subjects", WHERE)


def test_a_registry_that_is_away_or_none() -> None:
    port = Port()
    away = Declared.of(f"http://127.0.0.1:{port.number}", None, None)
    with pytest.raises(RunError, match=r"does not answer: .*refused") as refused:
        get_json(away, "/subjects", WHERE)
    assert refused.value.__cause__ is not None  # by which a run takes it for an outage
    port.release()
