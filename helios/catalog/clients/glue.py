"""PyIceberg's Glue client with timeouts and a pool of connections."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import glue

CONNECT_SECONDS = 3
READ_SECONDS = 30
CONNECTIONS = 32
RETRIES = 3


class GlueCatalog(glue.GlueCatalog):
    """PyIceberg's client of AWS Glue."""

    def __init__(self, name: str, **properties: Any) -> None:
        from botocore.config import Config
        from botocore.session import Session

        session = Session(profile=properties.get(glue.GLUE_PROFILE_NAME))
        session.set_default_client_config(
            Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, max_pool_connections=CONNECTIONS)
        )
        # PyIceberg hands the text on as it is, and botocore compares it with a number.
        tries = int(properties.get(glue.GLUE_MAX_RETRIES, RETRIES))
        super().__init__(name, **{**properties, glue.GLUE_MAX_RETRIES: tries, "botocore_session": session})
        # Properties go to the FileIO, which is pickled; a session is not.
        self.properties.pop("botocore_session", None)
        self.properties[glue.GLUE_MAX_RETRIES] = str(tries)
