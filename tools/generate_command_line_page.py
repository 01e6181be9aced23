"""Writes docs/command_line.md from the parser of `keras-ring`."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from keras_ring.launch.cli import cli

HEADER = """# Command line

Generated from the parser of `keras-ring` by `make docs`; do not edit.

`keras-ring COMMAND --help` says the same. Usage errors end with exit code 2;
`keras-ring run` ends with the code of the rank that failed first.
`python -m keras_ring` is the same command.

| command | what it does |
|---|---|
"""


def _commands(
    parser: argparse.ArgumentParser, about: str = ""
) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yields the commands that have no commands below them, with their help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help for each in action._choices_actions}
            for name, child in action.choices.items():
                yield from _commands(child, helps.get(name) or about)
            return
    yield parser, about


def _shown(action: argparse.Action) -> str:
    """Returns an option as it is typed."""
    value = action.metavar or (
        "{" + ",".join(action.choices) + "}"
        if action.choices
        else action.dest.upper()
    )
    if not action.option_strings:
        if action.nargs == argparse.REMAINDER:
            return f"`-- {value.lower()} ...`"
        shown = {"*": f"[{value} ...]", "?": f"[{value}]"}
        return f"`{shown.get(action.nargs, value)}`"
    takes_one = action.nargs is None
    return ", ".join(
        f"`{option} {value}`" if takes_one else f"`{option}`"
        for option in action.option_strings
    )


def _section(parser: argparse.ArgumentParser, about: str) -> str:
    words = [
        _shown(action).strip("`")
        for action in parser._actions
        if not action.option_strings
    ]
    usage = parser.usage or " ".join([parser.prog, "[options]", *words])
    tables = [
        _table(group.title, group._group_actions)
        for group in parser._action_groups
    ]
    text = f"\n## {parser.prog}\n\n```text\n{usage}\n```\n\n"
    description = parser.description or about
    text += description[:1].upper() + description[1:]
    text += "" if description.endswith(".") else "."
    if parser.epilog:
        text += f"\n\n{parser.epilog.replace(': ', ': `', 1)}`"
    return text + "\n" + "".join(tables)


def _table(title: str | None, actions: list[argparse.Action]) -> str:
    """Returns a table of the arguments of a group, or "" if it has none."""
    rows = [
        f"| {_shown(action)} | {action.help or ''} |".replace("%%", "%")
        for action in actions
        if not isinstance(action, argparse._HelpAction)
    ]
    if not rows:
        return ""
    head = f"| {title} | |\n|---|---|\n"
    return "\n" + head + "\n".join(rows) + "\n"


def page() -> str:
    """Returns the text of the page."""
    commands = list(_commands(cli.parser()))
    lines = [
        f"| [`{parser.prog}`](#{parser.prog.replace(' ', '-')}) | {about} |"
        for parser, about in commands
    ]
    return (
        HEADER
        + "\n".join(lines)
        + "\n"
        + "".join(_section(*command) for command in commands)
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
