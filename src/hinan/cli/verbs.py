"""A Typer whose verbs take an option once: given twice, none wins silently.

Owns:      the rule for all subcommands. Options that may be repeated (lists) and switches that only say yes are not meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from hinan.core.errors import ConfigError


class _Once:
    """Refuses an option given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Reads the words as they are, then counts them.

        Raises:
            ConfigError: an option has two values.
        """
        words = list(args)
        rest = super().parse_args(ctx, args)  # type: ignore[misc]
        _, _, given = self.make_parser(ctx).parse_args(args=words)  # type: ignore[attr-defined]
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                raise ConfigError(f"{option.opts[0]} is given {times} times: which one is meant?", name=option.name)
        return rest


class _Verb(_Once, TyperCommand):
    """A subcommand."""


class _Group(_Once, TyperGroup):
    """Subcommands, and the options before them."""


class Verbs(typer.Typer):
    """Registers its subcommands as such."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": _Group, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """As Typer's."""
        return super().command(name, **{"cls": _Verb, **options})
