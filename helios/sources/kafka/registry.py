"""Queries a schema registry over Confluent's HTTP protocol; no JVM is needed."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from helios.errors import HeliosError, InputError, NotFound, Origin, RunError
from helios.sources.kafka.values import Registry

TIMEOUT = 10.0
"""The seconds after which a request fails."""

ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
NO_SUBJECT = (40401, 40402)
"""The registry's error codes for an unknown subject, and for an unknown version of a subject."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema in a registry.

    Attributes:
        id: The id of the schema. A registry never uses an id for another schema.
        version: The version of the schema in its subject.
        schema: The schema, as JSON.
    """

    id: int
    version: int
    schema: str


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: following one would send the login to another server."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def authorization(registry: Registry) -> str:
    """The value of the Authorization header; empty without a login."""
    if registry.username is None:
        return ""
    password = registry.password.reveal() if registry.password is not None else ""
    return f"Basic {base64.b64encode(f'{registry.username}:{password}'.encode()).decode()}"


def latest_schema(registry: Registry, subject: str, where: Origin) -> RegisteredSchema:
    """The latest schema of a subject.

    Raises:
        NotFound: The registry does not know the subject.
        InputError: The schema is not an Avro schema, or it refers to other schemas.
        RunError: The registry does not answer, or refuses the request.
    """
    schema = get_json(registry, f"/subjects/{quote(subject, safe='')}/versions/latest", where, subject)
    schema_type = schema.get("schemaType", "AVRO")
    if schema_type != "AVRO":
        raise InputError(
            f"the subject {subject} of {registry.url} has schemas of {schema_type}, and not of Avro.",
            where=where,
            fix='read value("json", registry=...) with schema=, or value("bytes").'
            if schema_type == "JSON"
            else 'read value("bytes"), and decode it in a step of your own.',
        )
    if schema.get("references"):
        raise InputError(
            f"the schema of {subject} of {registry.url} refers to other schemas, which Helios does not resolve.",
            where=where,
            fix='register it as one schema, or decode value("bytes") in a step of your own.',
        )
    return RegisteredSchema(int(schema["id"]), int(schema["version"]), str(schema["schema"]))


def get_json(registry: Registry, path: str, where: Origin, subject: str = "") -> Any:
    """The JSON answer of the registry to a GET request; `subject` is for messages.

    Raises:
        NotFound: The registry does not know the subject.
        RunError: The registry does not answer, or refuses the request.
    """
    request = Request(f"{registry.url}{path}", headers={"Accept": ACCEPTED})
    if login := authorization(registry):
        request.add_header("Authorization", login)
    try:
        with build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
            return json.loads(answer.read())
    except HTTPError as error:
        raise _refusal(registry, error, where, subject) from error
    except (OSError, HTTPException) as error:
        raise RunError(
            f"the schema registry {registry.url} does not answer: {getattr(error, 'reason', error)}.",
            where=where,
            fix="check registry=, and that the registry runs.",
        ) from error
    except ValueError as error:
        raise RunError(
            f"the schema registry {registry.url} does not answer with JSON: {error}.",
            where=where,
            fix="check that registry= is the address of a registry, and not of a web page.",
        ) from error


def _refusal(registry: Registry, error: HTTPError, where: Origin, subject: str) -> HeliosError:
    try:
        answer = json.loads(error.read())
    except (OSError, ValueError):
        answer = {}
    answer = answer if isinstance(answer, dict) else {}
    if error.code == 404 and answer.get("error_code") in NO_SUBJECT:
        return NotFound(
            f"the schema registry {registry.url} has no subject {subject!r}.",
            where=where,
            fix="name the subject that the producers register: registry_subject=..., or declare schema=.",
        )
    message = f": {answer['message']}" if answer.get("message") else ""
    fix = "check registry=, and the log of the registry."
    if error.code in (401, 403):
        fix = "give registry_login=(name, password) of a user who may read."
    return RunError(f"the schema registry {registry.url} answers {error.code}{message}.", where=where, fix=fix)
