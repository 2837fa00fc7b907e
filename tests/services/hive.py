"""Hive Metastore 2.3 from pyspark's own jars, over an embedded Derby that outlives a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.services.artifacts import Jars, Java, SparkJars
from tests.services.rest import QUICK_JVM
from tests.services.server import Server, Storage, listens

SPARK = SparkJars("hive")
JAVA = Java("hive")
S3A = Jars("hive", components=("s3a",))
JETTY = Jars("hive", sets=(tuple(f"org.eclipse.jetty:jetty-{name}:12.1.3" for name in ("xml", "util", "io")),))
ARTIFACTS = (JAVA, SPARK, JETTY, S3A)

_SERVER = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="conf" class="org.apache.hadoop.hive.conf.HiveConf">
{prepare}
  <Call class="org.apache.hadoop.hive.metastore.HiveMetaStore" name="main">
    <Arg><Array type="java.lang.String"><Item>-p</Item><Item>{port}</Item></Array></Arg>
  </Call>
</Configure>
"""
# The tables of locks, which Derby's schema lacks: PyIceberg, and Java by default, commit under a lock.
_LOCKS = """
  <Call class="org.apache.hadoop.hive.metastore.txn.TxnDbUtil" name="prepDb"><Arg><Ref refid="conf"/></Arg></Call>
"""


class Hive(Server):
    """A Hive Metastore.

    Args:
        warehouse: The URI where it puts databases; by default a local folder. It makes their folders itself.
        storage: The server of the warehouse's storage, an S3, when it is not a local folder.
        folder: See `Server`.
    """

    service = "hive"

    def __init__(
        self, warehouse: str | None = None, storage: Storage | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(folder)
        self.warehouse = warehouse or f"file://{self.folder / 'warehouse'}"
        self._storage = storage

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        java, spark = JAVA.find(), SPARK.find()
        own = S3A.find() if self._storage else []
        classes = ":".join([str(self.folder / "conf"), f"{spark}/*", *map(str, [*JETTY.find(), *own])])
        main = ["org.eclipse.jetty.xml.XmlConfiguration", str(self.folder / "server.xml")]
        logs = [f"-Dderby.stream.error.file={self.folder / 'derby.log'}", "-Dhive.root.logger=console"]
        return [java, *QUICK_JVM, *logs, f"-Dhive.log.dir={self.folder}", "-cp", classes, *main]

    def prepare(self) -> None:
        (self.folder / "conf").mkdir(exist_ok=True)
        properties = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder / 'metastore'};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "hikaricp",
            "hive.metastore.schema.verification": "false",
            "hive.async.log.enabled": "false",
            "hive.metastore.warehouse.dir": self.warehouse,
            **(_s3a(self._storage.iceberg()) if self._storage else {}),
        }
        rows = "\n".join(
            f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
            for key, value in properties.items()
        )
        first = not (self.folder / "metastore").exists()
        server = _SERVER.format(prepare=_LOCKS if first else "", port=self.port)
        (self.folder / "server.xml").write_text(server, encoding="utf-8")
        text = f"<?xml version='1.0'?>\n<configuration>\n{rows}\n</configuration>\n"
        (self.folder / "conf" / "hive-site.xml").write_text(text, encoding="utf-8")

    def ready(self) -> bool:
        return listens(self.port)

    def addresses(self) -> dict[str, str]:
        return {"uri": self.uri, "warehouse": self.warehouse}


def _s3a(iceberg: dict[str, str]) -> dict[str, str]:
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": iceberg["s3.endpoint"],
        "fs.s3a.endpoint.region": iceberg["client.region"],
        "fs.s3a.access.key": iceberg["s3.access-key-id"],
        "fs.s3a.secret.key": iceberg["s3.secret-access-key"],
        "fs.s3a.path.style.access": "true",
    }
