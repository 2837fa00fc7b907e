"""Compiles Helios's Java classes with Spark's own compiler (Janino), and sends them to the executors in a jar."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.types.java import JavaClass, JavaClassLoader, JavaObject

_LOCK = threading.Lock()
_COMPILED: dict[tuple[str, Path], JavaClass] = {}


def instance(spark: SparkSession, source: Path, *arguments: object, base: Path | None = None) -> JavaObject:
    """An instance of a Java class whose source file is part of the Python package.

    Args:
        spark: The session, whose executors get the class.
        source: The source file. It defines one class, which has the name of the file.
        arguments: The arguments for the only constructor of the class.
        base: The source file of the base class; None if Helios does not compile the base class.
    """
    with _LOCK:
        parent_loader = _compiled(spark, base, None).getClassLoader() if base is not None else None
        compiled = _compiled(spark, source, parent_loader)
    [constructor] = compiled.getConstructors()
    new_instance: JavaObject = constructor.newInstance(java_array(classes().java.lang.Object, arguments))
    return new_instance


def _compiled(spark: SparkSession, source: Path, parent_loader: JavaClassLoader | None) -> JavaClass:
    key = (str(spark.sparkContext.applicationId), source)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(spark, source, parent_loader)
    return _COMPILED[key]


def _compile(spark: SparkSession, source: Path, parent_loader: JavaClassLoader | None) -> JavaClass:
    jvm, text = classes(), source.read_text()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent_loader or jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(text)
    # The name contains a hash of the source, because Spark ignores a second jar of the same name.
    name = f"helios-{source.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jar"
    jar = Path(str(spark.sparkContext._temp_dir)) / name
    with zipfile.ZipFile(jar, "w") as archive:
        for entry in compiler.getBytecodes().entrySet().toArray():
            archive.writestr(f"{entry.getKey().replace('.', '/')}.class", entry.getValue())
    spark.sparkContext._jsc.sc().addJar(str(jar))
    package_line = next(line for line in text.splitlines() if line.startswith("package "))
    package = package_line.removeprefix("package ").removesuffix(";")
    java_class: JavaClass = compiler.getClassLoader().loadClass(f"{package}.{source.stem}")
    return java_class
