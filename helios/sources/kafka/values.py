"""Declares how the values of Kafka records become columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from helios.errors import DeclarationError
from helios.model.arguments import TIMESTAMPS, TimestampUnit, columns_ddl, count, one_of, text
from helios.model.values import Secret, caller

ValueFormat: TypeAlias = Literal["json", "avro", "string", "bytes"]
Extra: TypeAlias = Literal["fail", "ignore"]

FORMATS = ("json", "avro", "string", "bytes")
WITH_FIELDS = ("json", "avro")
EXTRA = ("fail", "ignore")

APPLIES_TO = {
    "sample": "columns of JSON that are inferred, without schema=",
    "timestamps": "numbers of JSON where schema= has a timestamp",
}
"""What some arguments of `value()` apply to. All other arguments apply to values with fields."""

SAMPLE = 1_000
"""The default number of records from which the columns of JSON are inferred."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A schema registry with Confluent's protocol: values begin with the byte 0 and the id of their schema.

    Attributes:
        username: The name for basic authentication; None without a login.
        subject: The subject whose latest schema the columns follow; if None, `TOPIC-value` of each topic.
        allow_http: Whether `http://` to another machine is allowed.
    """

    url: str
    username: str | None = None
    password: Secret | None = field(default=None, repr=False)
    subject: str | None = None
    allow_http: bool = False

    @classmethod
    def of(
        cls, url: str, login: tuple[str, str | Secret] | None, subject: str | None, *, allow_http: bool = False
    ) -> Self:
        """The declared registry.

        Raises:
            DeclarationError: The address is not an HTTP URL, or has a login in it.
        """
        try:
            parts = urlsplit(text(url, "registry="))
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        except ValueError:
            valid, parts = False, urlsplit("")
        if not valid or parts.username is not None:
            # The error does not show an address with an @, since the address may have a password.
            shown = "registry=" if "@" in url else f"registry={url!r}"
            why = "is not the address of a registry" if parts.username is None else "has a login, which would be shown"
            raise DeclarationError(
                f"{shown} {why}.",
                where=caller(),
                fix='write registry="https://registry:8081", and registry_login=("name", password) for a login.',
            )
        if login is not None and (not isinstance(login, tuple) or len(login) != 2):
            raise DeclarationError(
                "registry_login= takes a name and a password.", where=caller(), fix='write ("name", password).'
            )
        name, secret = login if login is not None else (None, None)
        return cls(
            url=url.rstrip("/"),
            username=text(name, "registry_login=") if name is not None else None,
            password=Secret(secret) if isinstance(secret, str) else secret,
            subject=subject,
            allow_http=allow_http,
        )


@dataclass(frozen=True, kw_only=True)
class Values:
    """How the values of records are read.

    Attributes:
        format: "bytes", "string", "json" or "avro".
        columns: The columns, as DDL; None until a run knows them: for Avro, and for JSON without a schema.
        avro: The Avro schema, as JSON: the declared one, or that of the registry once it is known; None until then.
        extra: The policy for fields of a value that the schema lacks.
        sample: About how many records are read to infer the columns.
        timestamps: The unit of JSON numbers in columns of timestamps.
    """

    format: str = "bytes"
    columns: str | None = "`value` binary"
    avro: str | None = None
    registry: Registry | None = None
    extra: str = "fail"
    sample: int = SAMPLE
    timestamps: TimestampUnit = "s"

    @classmethod
    def of(
        cls,
        format: str,
        schema: str | Path | Mapping[str, Any] | None,
        extra: str,
        sample: int,
        registry: Registry | None,
        *,
        timestamps: TimestampUnit = "s",
    ) -> Self:
        """The declared values; see `KafkaSource.value`.

        Raises:
            DeclarationError: The format is unknown, or does not take one of the other arguments.
        """
        one_of(format, FORMATS, "value")
        one_of(extra, EXTRA, "extra")
        count(sample, "sample")
        one_of(timestamps, TIMESTAMPS, "timestamps")
        if format == "json":
            cls._refuse(format, sample=schema is not None and sample != SAMPLE)
            cls._refuse(format, timestamps=schema is None and timestamps != "s")
            columns = columns_ddl(schema if not isinstance(schema, Path) else str(schema))
            return cls(
                format=format, columns=columns, extra=extra, sample=sample, registry=registry, timestamps=timestamps
            )
        cls._refuse(format, sample=sample != SAMPLE, timestamps=timestamps != "s")
        if format == "avro":
            if schema is None and registry is None:
                raise DeclarationError(
                    'value("avro") needs the schema of the values, or a registry that knows it.',
                    where=caller(),
                    fix='write value("avro", schema="orders.avsc"), or registry="https://registry:8081".',
                )
            avro = avro_schema(schema) if schema is not None else None
            return cls(format=format, columns=None, avro=avro, extra=extra, registry=registry)
        cls._refuse(format, schema=schema is not None, extra=extra != "fail", registry=registry is not None)
        return cls(format=format, columns=f"`value` {'string' if format == 'string' else 'binary'}")

    @staticmethod
    def _refuse(format: str, **passed: bool) -> None:
        """Refuses arguments that a format does not take; `passed` says which of them the user has passed."""
        argument = next((name for name, is_passed in passed.items() if is_passed), None)
        if argument is not None:
            values = APPLIES_TO.get(argument, "values with fields")
            raise DeclarationError(
                f"value({format!r}): {argument}= applies to {values}.", where=caller(), fix=f"leave {argument}= out."
            )

    @property
    def has_fields(self) -> bool:
        """True if a value has fields, which become columns."""
        return self.format in WITH_FIELDS

    @property
    def infers_columns(self) -> bool:
        return self.format == "json" and self.columns is None

    def text(self) -> str:
        """The declaration as text, for the list of the pipeline's steps."""
        columns = self.columns if self.format == "json" else self.avro
        schema = f", schema={columns!r}" if self.has_fields and columns is not None else ""
        registry = f", registry={self.registry.url!r}" if self.registry is not None else ""
        extra = f", extra={self.extra!r}" if self.extra != "fail" else ""
        unit = f", timestamps={self.timestamps!r}" if self.timestamps != "s" else ""
        return f"value({self.format!r}{schema}{registry}{extra}{unit})"

    def details(self) -> Iterator[str]:
        """The lines of the plan about values."""
        extra = {"fail": "records with other fields are bad", "ignore": "other fields are left out"}[self.extra]
        yield f"values as {self.format}" + (f"; {extra}" if self.has_fields else "")
        if self.timestamps != "s":
            yield f"numbers for timestamps are {TIMESTAMPS[self.timestamps]}"
        if self.infers_columns:
            yield f"columns inferred from about {self.sample:,} records at the first start, and kept in the checkpoint"
        if self.registry is not None:
            login = f", as {self.registry.username}" if self.registry.username is not None else ""
            follows = self.format == "avro" and self.avro is None
            subject = f"the latest schema of {self.registry.subject or 'TOPIC-value'}"
            yield f"schema registry {self.registry.url}{login}" + (f"; columns as {subject}" if follows else "")

    def as_json(self) -> dict[str, Any]:
        """The values for `helios plan --json`."""
        return {
            "value": self.format,
            "extra": self.extra if self.has_fields else None,
            "timestamps": self.timestamps if self.format == "json" else None,
            "inferred_from": self.sample if self.infers_columns else None,
            "registry": self.registry.url if self.registry is not None else None,
        }


def avro_schema(given: str | Path | Mapping[str, Any]) -> str:
    """An Avro schema as JSON; `given` is the schema itself, or the path of its file.

    Raises:
        DeclarationError: The file cannot be read, or the schema is not a record schema.
    """
    call = 'value("avro", schema=)'
    if isinstance(given, Path) or (isinstance(given, str) and given.strip().endswith(".avsc")):
        try:
            content: Any = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DeclarationError(
                f"{call}: {given} cannot be read: {error}.", where=caller(), fix="give the path of an .avsc file."
            ) from None
    else:
        content = given
    try:
        schema = json.loads(content) if isinstance(content, str) else dict(content)
    except (ValueError, TypeError) as error:
        raise DeclarationError(
            f"{call}: this is not JSON: {error}.", where=caller(), fix="give Avro's JSON, or the path of an .avsc file."
        ) from None
    if not isinstance(schema, dict) or schema.get("type") != "record" or not schema.get("fields"):
        raise DeclarationError(
            f"{call}: values are records with fields, and the schema is not a record schema.",
            where=caller(),
            fix='write {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}.',
        )
    return json.dumps(schema, separators=(",", ":"))
