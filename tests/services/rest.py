"""Iceberg's own REST catalog of its tests, over a SQLite file: what it knows outlives a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.services.artifacts import Jars, Java, SparkJars
from tests.services.server import Server, Storage, status

ICEBERG = "1.11.0"  # the newest whose tests jar is published
JETTY = "12.1.3"
JARS = Jars(
    "rest",
    sets=(
        (
            *(f"org.apache.iceberg:iceberg-{name}:{ICEBERG}" for name in ("core", "api", "common", "bundled-guava")),
            *(f"org.apache.iceberg:iceberg-{name}:{ICEBERG}" for name in ("gcp", "azure")),
            "org.apache.iceberg:iceberg-aws:1.12.0",  # of the version of the bundle
            *(f"org.eclipse.jetty:jetty-{name}:{JETTY}" for name in ("server", "http", "io", "util", "xml")),
            *(f"org.eclipse.jetty:jetty-{name}:{JETTY}" for name in ("session", "security")),
            f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
            *(f"org.eclipse.jetty.compression:jetty-compression-{n}:{JETTY}" for n in ("common", "server", "gzip")),
            "jakarta.servlet:jakarta.servlet-api:6.1.0",
            "org.apache.httpcomponents.client5:httpclient5:5.5",
            "org.apache.httpcomponents.core5:httpcore5:5.3.4",
            "org.apache.httpcomponents.core5:httpcore5-h2:5.3.4",
            "dev.failsafe:failsafe:3.3.2",
        ),
        (f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",),
    ),
    components=("sqlite", "aws"),
)
AZURE = Jars("rest", components=("azure",))
GCP = Jars("rest", components=("gcp",))
SPARK = SparkJars("rest")  # Jackson, Avro, Caffeine and Hadoop
JAVA = Java("rest")
ARTIFACTS = (JAVA, SPARK, JARS)
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

# As Iceberg's RESTCatalogServer puts it together, but on loopback: that one listens on every interface.
_SERVER = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call id="catalog" class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
    <Arg>rest_backend</Arg>
    <Arg><Map>
{entries}
    </Map></Arg>
    <Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg>
  </Call>
  <Call name="addConnector"><Arg>
    <New class="org.eclipse.jetty.server.ServerConnector">
      <Arg name="server"><Ref refid="Server"/></Arg>
      <Set name="host">127.0.0.1</Set>
      <Set name="port">{port}</Set>
    </New>
  </Arg></Call>
  <Set name="handler"><New class="org.eclipse.jetty.compression.server.CompressionHandler">
    <Call name="putCompression"><Arg><New class="org.eclipse.jetty.compression.gzip.GzipCompression"/></Arg></Call>
    <Set name="handler"><New class="org.eclipse.jetty.ee10.servlet.ServletContextHandler">
      <Call name="addServlet">
        <Arg><New class="org.eclipse.jetty.ee10.servlet.ServletHolder"><Arg>
          <New class="org.apache.iceberg.rest.RESTCatalogServlet"><Arg>
            <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="catalog"/></Arg></New>
          </Arg></New>
        </Arg></New></Arg>
        <Arg>/*</Arg>
      </Call>
    </New></Set>
  </New></Set>
</Configure>
"""


class Rest(Server):
    """A REST catalog.

    Args:
        warehouse: The URI where it puts tables; by default a local folder.
        storage: The server of the warehouse's storage, when it is not a local folder.
        database: The SQLite file of its tables; servers over the same one are replicas of one catalog.
        folder: See `Server`.
    """

    service = "rest"

    def __init__(
        self,
        warehouse: str | None = None,
        storage: Storage | None = None,
        database: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self.warehouse = warehouse or f"file://{self.folder / 'warehouse'}"
        self.database = database or self.folder / "catalog.db"
        self._storage = storage

    @property
    def uri(self) -> str:
        return self.endpoint

    def command(self) -> Sequence[str | Path]:
        java, spark, own = JAVA.find(), SPARK.find(), JARS.find()
        bundles = [jar for scheme, row in _BUNDLES.items() if self.warehouse.startswith(scheme) for jar in row.find()]
        classes = ":".join([*map(str, own), *map(str, bundles), f"{spark}/*"])
        main = ["-cp", classes, "org.eclipse.jetty.xml.XmlConfiguration"]
        return [java, *QUICK_JVM, *main, self.folder / "server.xml"]

    def prepare(self) -> None:
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            "uri": f"jdbc:sqlite:{self.database}",
            "warehouse": self.warehouse,
            "jdbc.schema-version": "V1",
            "jdbc.busy_timeout": "60000",
            **(self._storage.iceberg() if self._storage else {}),
        }
        entries = "\n".join(
            f"      <Entry><Item>{escape(key)}</Item><Item>{escape(value)}</Item></Entry>"
            for key, value in properties.items()
        )
        (self.folder / "server.xml").write_text(_SERVER.format(entries=entries, port=self.port), encoding="utf-8")

    def ready(self) -> bool:
        return status(f"{self.uri}/v1/namespaces") == 200

    def addresses(self) -> dict[str, str]:
        return {"uri": self.uri, "warehouse": self.warehouse, "database": str(self.database)}


_BUNDLES = {"abfs": AZURE, "wasb": AZURE, "gs:": GCP}
