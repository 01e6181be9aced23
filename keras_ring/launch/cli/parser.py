"""A parser of arguments that says what a mistyped word may have meant."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from keras_ring.launch.usage import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that raises on bad usage, so that `main` prints one line.

    Options are not abbreviated: a word that begins like one is an error that
    names it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raises a `UsageError`."""
        raise UsageError(message)

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses arguments, of which this parser must know all."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].split("=")[0]
            if not word.startswith("-"):
                self.error(f"{self.prog} takes no argument {word!r} here")
            self.error(
                f"{self.prog} has no option {word}"
                f"{meant(word, self._option_string_actions)}: "
                f"`{self.prog} --help` lists all"
            )
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(each) for each in action.choices]
        what = "value"
        if not action.option_strings and isinstance(action.metavar, str):
            what = action.metavar.lower()
        raise argparse.ArgumentError(
            action if action.option_strings else None,
            f"there is no {what} {value!r}{meant(str(value), choices)}: "
            f"choose from {', '.join(choices)}",
        )


def meant(word: str, known: Iterable[str]) -> str:
    """Returns a text about the known word that is most like another one.

    Args:
        word: String, the word that is not known.
        known: The words that are.

    Returns:
        String, such as " (did you mean --hosts?)", or "" if none is alike.
    """
    alike = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {alike[0]}?)" if alike else ""
