"""Words typed as NAME=VALUE, each once (`hinan plan --given`, `hinan simulate --set`)."""

from __future__ import annotations

from collections.abc import Sequence

from hinan.core.errors import ConfigError


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Names and values in the order typed.

    Raises:
        ConfigError: one without "=", or a name given twice: none wins silently.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"{option} {text!r} is not NAME=VALUE", value=text)
        if name in found:
            raise ConfigError(f"{option} {name} is given twice: {found[name]} and {value}", name=name)
        found[name] = value
    return found
