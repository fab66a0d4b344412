"""Parts that a user's own package provides, named `package.module:factory` in the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from headgate.config import Configuration
from headgate.contract.schema import IllegibleError, legible
from headgate.errors import ConfigurationError


def make(name: str, *arguments: Any) -> Any:
    """Import the factory and call it; a `ConfigurationError` says what went wrong."""
    factory = find(name)
    try:
        return factory(*arguments)
    except Exception as error:
        raise ConfigurationError(f"{name} failed: {type(error).__name__}: {error}") from error


def find(name: str) -> Any:
    """Import the factory; a `ConfigurationError` says why that is impossible."""
    module_name, _, attribute = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:  # the module is the user's: anything can happen in it
        raise ConfigurationError(f"{name}: cannot import {module_name}: {error}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigurationError(f"{name}: {module_name} has no {attribute!r}") from None


def examine_factories(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Import every part of the user's own, and say which are not there; a draft will do."""
    try:
        names = [name for _, name in legible(configuration.hooks)]
    except IllegibleError:
        names = []
    if isinstance(configuration.store, str):
        names.append(configuration.store)
    for name in names:
        try:
            find(name)
        except ConfigurationError as error:
            yield error
