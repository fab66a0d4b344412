"""Parts that a user's own package provides, named `package.module:factory` in the configuration."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headgate.errors import ConfigurationError


def make(name: str, *arguments: Any) -> Any:
    """Import the factory and call it; a `ConfigurationError` says what went wrong."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except ImportError as error:
        raise ConfigurationError(f"{name}: cannot import {module_name}: {error}") from error
    except AttributeError:
        raise ConfigurationError(f"{name}: {module_name} has no {attribute!r}") from None
    try:
        return factory(*arguments)
    except Exception as error:
        raise ConfigurationError(f"{name} failed: {type(error).__name__}: {error}") from error
