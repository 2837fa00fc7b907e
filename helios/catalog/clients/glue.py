"""PyIceberg's Glue client with timeouts and a pool of connections."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import glue

CONNECT_SECONDS = 3
READ_SECONDS = 30
CONNECTIONS = 32
RETRIES = 3


class GlueCatalog(glue.GlueCatalog):
    def __init__(self, name: str, **properties: Any) -> None:
        from botocore.config import Config
        from botocore.session import Session

        session = Session(profile=properties.get(glue.GLUE_PROFILE_NAME))
        session.set_default_client_config(
            Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, max_pool_connections=CONNECTIONS)
        )
        # PyIceberg passes a text on unchanged, but botocore needs a number.
        retries = int(properties.get(glue.GLUE_MAX_RETRIES, RETRIES))
        super().__init__(name, **{**properties, glue.GLUE_MAX_RETRIES: retries, "botocore_session": session})
        # The FileIO gets these properties and is pickled; a session cannot be pickled.
        self.properties.pop("botocore_session", None)
        self.properties[glue.GLUE_MAX_RETRIES] = str(retries)
