#!/usr/bin/env bash
# Prints the home of a Java that Spark 4 runs on (17 or 21), from JAVA_HOME, PATH or the usual folders.
# With --install, a missing one is installed on Debian as root; elsewhere the message says what to install.
set -euo pipefail

FOLDER=${JVM_FOLDER:-/usr/lib/jvm}
# Debian 12 has 17, Debian 13 has 21; another distribution may have only its default.
PACKAGES="openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless"

# Prints the home of the java at $1 if its version fits.
home_of() {
    local settings version
    [ -x "$1" ] || return 1
    settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    case $version in
        17 | 21) sed -n 's/^ *java\.home = //p' <<<"$settings" ;;
        *) return 1 ;;
    esac
}

find_java() {
    local java
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        "$FOLDER"/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        home_of "$java" && return
    done
    return 1
}

install_java() {
    local package
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "No Java 17 or 21 here: installing OpenJDK with apt-get." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    for package in $PACKAGES; do
        [ -n "$(apt-cache show "$package" 2>/dev/null)" ] || continue # the names of others may be known, too
        apt-get install -qq -y --no-install-recommends "$package" >&2 && find_java && return
    done
    echo "apt-get has installed no Java 17 or 21; tried: $PACKAGES." >&2
    return 1
}

find_java && exit
if [ "${1:-}" = --install ] && install_java; then
    exit
fi
echo "Spark needs Java 17 or 21, and none was found through JAVA_HOME, PATH or $FOLDER." >&2
echo "Install one (Debian, Ubuntu: the first of $PACKAGES" >&2
echo "that apt-get has; Fedora: java-21-openjdk-headless; macOS: brew install --cask temurin@21), or set JAVA_HOME to it." >&2
exit 1
