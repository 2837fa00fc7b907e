"""Storages of warehouses as immutable values, declared in a script or in helios.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helios.catalog.home import project_folder
from helios.catalog.keys import Pairs, Setting, completed_settings, settings_problem
from helios.catalog.storages import STORAGES
from helios.errors import DeclarationError, Origin, near_miss
from helios.model.values import Secret, caller


@dataclass(frozen=True)
class Storage:
    """The storage of a catalog's warehouse. Made by `Storage.local` and its siblings, or by `[storages.NAME]`."""

    type: str
    options: Pairs = ()
    origin: Origin | None = field(default_factory=caller, compare=False, repr=False)

    def __post_init__(self) -> None:
        row = STORAGES.get(self.type)
        if row is None:
            raise DeclarationError(
                f"storage type {self.type!r} is unknown. {near_miss(self.type, STORAGES)}", where=self.origin
            )
        fault = settings_problem(row.keys, dict(self.options)) or row.fault(dict(self.options))
        if fault:
            raise DeclarationError(f"Storage.{self.type}: {fault[1]}", where=self.origin)
        options = completed_settings(
            row.keys, dict(self.options), self.type, Path.cwd(), lambda: project_folder(self.origin)
        )
        object.__setattr__(self, "options", options)

    def option(self, name: str) -> Setting | None:
        """The value of a setting; None if the setting is not given."""
        return dict(self.options).get(name)

    @staticmethod
    def s3(
        *,
        region: str | None = None,
        endpoint: str | None = None,
        path_style: bool | None = None,
        access_key_id: str | Secret | None = None,
        secret_access_key: str | Secret | None = None,
        session_token: str | Secret | None = None,
    ) -> Storage:
        """Amazon S3, or a server that speaks its protocol, such as MinIO.

        Args:
            region: The bucket's region; by default that of the AWS configuration, or us-east-1 with an `endpoint`.
            endpoint: The address of a server other than Amazon's.
            path_style: Whether the bucket is in the path; by default True with an `endpoint`.
            access_key_id: The id of an access key; by default AWS's credential chain is used.
            secret_access_key: The secret of `access_key_id`.
            session_token: The session token of temporary keys.

        Raises:
            DeclarationError: A key without its secret, or an endpoint that is not a URL.

        Examples:
            >>> Storage.s3(endpoint="http://localhost:9000", access_key_id="minio", secret_access_key="secret").options
            (('endpoint', 'http://localhost:9000'), ('access_key_id', ***), ('secret_access_key', ***))
        """
        return Storage("s3", without_none(locals()))

    @staticmethod
    def adls(
        account: str | None = None,
        *,
        account_key: str | Secret | None = None,
        sas_token: str | Secret | None = None,
        connection_string: str | Secret | None = None,
        endpoint: str | None = None,
    ) -> Storage:
        """Azure Data Lake Storage; warehouses on it are `abfss://container@account.dfs.core.windows.net/folder`.

        Args:
            account: The storage account.
            account_key: An access key of the account; by default Azure's credential chain is used.
            sas_token: A shared access signature, instead of `account_key`.
            connection_string: A text with the account, its address, and a key or signature, from the Azure portal.
            endpoint: Another address of the account, such as Azurite's.

        Raises:
            DeclarationError: No account, or two kinds of credentials.

        Examples:
            >>> Storage.adls("lake", account_key="a2V5").options
            (('account', 'lake'), ('account_key', ***))
        """
        return Storage("adls", without_none(locals()))

    @staticmethod
    def gcs(
        *,
        project_id: str | None = None,
        service_account_key: str | os.PathLike[str] | None = None,
        endpoint: str | None = None,
    ) -> Storage:
        """Google Cloud Storage; warehouses on it are `gs://bucket/folder`.

        Args:
            project_id: The project that is billed.
            service_account_key: The path of a key file; by default Google's credential chain is used.
            endpoint: Another address, such as an emulator's. An address that begins with `http://` gets no credentials.

        Examples:
            >>> Storage.gcs(project_id="lake").options
            (('project_id', 'lake'),)
        """
        return Storage("gcs", without_none(locals()))

    @staticmethod
    def local(path: str | os.PathLike[str]) -> Storage:
        """A folder that every machine of the run sees.

        Args:
            path: The folder of the warehouse; a relative path starts at the working directory.

        Examples:
            >>> Storage.local(path="/data/lake").options
            (('path', '/data/lake'),)
        """
        return Storage("local", without_none(locals()))


def without_none(settings: Mapping[str, Any]) -> Pairs:
    """The arguments of a factory that are not None, as pairs of name and value."""
    return tuple((name, _plain(value)) for name, value in settings.items() if value is not None)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return tuple(value) if isinstance(value, list) else value
