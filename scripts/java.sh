#!/usr/bin/env bash
# Prints the home of a Java that Spark 4 runs on (17 or 21), from JAVA_HOME, PATH or the usual folders.
# With --install, a missing one is installed on Debian as root; elsewhere the message says what to install.
set -euo pipefail

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
        /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        home_of "$java" && return
    done
    return 1
}

install_java() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "No Java 17 or 21 here: installing OpenJDK from Debian." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    # Debian 12 has 17, Debian 13 has 21.
    apt-get install -qq -y --no-install-recommends openjdk-17-jre-headless >&2 ||
        apt-get install -qq -y --no-install-recommends openjdk-21-jre-headless >&2
}

find_java && exit
if [ "${1:-}" = --install ] && install_java && find_java; then
    exit
fi
echo "Spark needs Java 17 or 21, and none was found through JAVA_HOME, PATH or /usr/lib/jvm." >&2
echo "Install one (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: java-21-openjdk-headless;" >&2
echo "macOS: brew install --cask temurin@21), or set JAVA_HOME to it." >&2
exit 1
