"""Compiles the hot path with Cython; without a compiler the package works uncompiled, slower.

Each compiled module is an ordinary typed Python file with a `.pxd` beside it that gives the C
types (docs/decisions/0002-cython.md). A module is compiled if it has a `.pxd`: no list to keep.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = sorted(path.with_suffix(".py") for path in Path("src/headgate").rglob("*.pxd"))


def say_uncompiled(error: Exception) -> None:
    sys.stderr.write(f"headgate: the hot path stays uncompiled, several times slower: {error}\n")


class OptionalBuild(build_ext):
    """Falls back to the uncompiled modules with one clear line."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            say_uncompiled(error)


def extensions() -> list[Extension]:
    if os.environ.get("HEADGATE_PURE") or not SOURCES:
        return []
    modules = [
        Extension(
            ".".join(source.relative_to("src").with_suffix("").parts),
            [str(source)],
            extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing"],
            optional=True,
        )
        for source in SOURCES
        if source.name != "__init__.py"
    ]
    try:
        return compile_to_c(modules)
    except Exception as error:  # Cython's own CompileError among them
        say_uncompiled(error)
        return []


def compile_to_c(modules: list[Extension]) -> list[Extension]:
    from Cython.Build import cythonize  # noqa: PLC0415 (it may be missing)

    return cythonize(
        modules,
        include_path=["src"],
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": "3",
            "boundscheck": True,
            "annotation_typing": False,
            "binding": True,
        },
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
