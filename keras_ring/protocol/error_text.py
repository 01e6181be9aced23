"""Finds the cause in the text of an error, without TensorFlow's additions.

The text of an error in a compiled step begins with the Python stack of each
node that took part in it. This takes kilobytes, before the one line that says
what was wrong.
"""

import re

_MAX_CHARACTERS = 500
# Of a longer text, only the first and the last half of this are read.
_MAX_TEXT = 1 << 17

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FUNCTION_TAG = re.compile(r"\{\{function_node [^}]*\}\} ?")
_OP_TAG = re.compile(r" ?\[Op:[^\]]*\](?: name:.*)?$")
# [[{{node loss/mul}}]], in sessions [[node loss/mul (defined at a.py:3) ]], and
# for other nodes that failed with it [[loss/mul]].
_NODE = re.compile(
    r"\s*\[\[(?:(?:\{\{)?node (?P<name>[^\s{}\[\]]+)[^\[\]]*"
    r"|[A-Za-z][\w./>:-]*)\]\]\s*$"
)
# The first line of the stack of a node, of user code or of a Python function.
_STACK = re.compile(
    r"\s*(?:Detected at node .* defined at \(most recent call last\):"
    r"|in user code:"
    r"|Traceback \(most recent call last\):"
    r"|Stack trace for op definition:)\s*$"
)
_FRAME = re.compile(r'(?P<indent>\s*)File ".*", line \d+')
_FRAMING = re.compile(
    r"\s*(?:Graph execution error:"
    r"|<stack traces unavailable>"
    r"|Node: '.*'"
    r"|\d+ root error\(s\) found\."
    r"|\d+ successful operations\."
    r"|\d+ derived errors? ignored\.)\s*$"
)
# One of several root errors: "(0) INVALID_ARGUMENT: ".
_ROOT_ERROR = re.compile(r"\s*\(\d+\) [A-Z_]+: +")
# The first line of the part in which a session tells the origin of its nodes.
_APPENDIX = re.compile(
    r"\s*(?:Original stack trace for |Operation defined at:"
    r"|Errors may have originated from an input operation\.)"
)
# The form in which `cause` adds the node: a text may begin with its own cause.
_AT_NODE = re.compile(r" \(node [^()]*\)$")
# Our own operations name the tensor, so their node adds nothing.
_OURS = "KerasRing"


def cause(text: str) -> str:
    """Returns the text of an error without stacks and tags of TensorFlow.

    Args:
        text: String, the text of an exception, as from `str(error)`.

    Returns:
        String, the lines that TensorFlow has not added, with the name of the
        failed node after the last of them. If no line would be left, the whole
        text.
    """
    if len(text) > _MAX_TEXT:
        half = _MAX_TEXT // 2
        text = f"{text[:half]}\n{text[-half:]}"
    kept: list[str] = []
    seen = set()
    node = ""
    for line in _without_stacks(_COLORS.sub("", text).splitlines()):
        if _APPENDIX.match(line):
            break
        bare = _OP_TAG.sub("", _FUNCTION_TAG.sub("", line))
        found = _NODE.match(bare)
        if found is not None:
            node = node or found["name"]
        elif not _FRAMING.match(bare):
            shown = _ROOT_ERROR.sub("", bare).rstrip()
            plain = _AT_NODE.sub("", shown).strip()
            if shown.strip() and plain not in seen:
                seen.add(plain)
                kept.append(shown)
    if not kept:
        return text.strip()
    at_node = f" (node {node})"
    if node and _OURS not in node and at_node not in kept[-1]:
        kept[-1] += at_node
    return "\n".join(kept).strip()


def _without_stacks(lines: list[str]) -> list[str]:
    kept = []
    in_stack = False
    # The indentation of the previous frame. Its source line has a larger one.
    frame: int | None = None
    for line in lines:
        if _STACK.match(line):
            in_stack, frame = True, None
            continue
        if in_stack:
            found = _FRAME.match(line)
            if found is not None:
                frame = len(found["indent"])
                continue
            if not line.strip():
                frame = None
                continue
            indent = len(line) - len(line.lstrip())
            if frame is not None and indent > frame:
                continue
            in_stack = False
        kept.append(line)
    return kept


def one_line(type_name: str, text: str) -> str:
    """Returns an error as one line of at most 500 characters.

    Args:
        type_name: String, the name of the exception's class.
        text: String, its text, which is reduced to the cause.
    """
    words = cause(text)
    line = " ".join((f"{type_name}: {words}" if words else type_name).split())
    if len(line) > _MAX_CHARACTERS:
        line = line[: _MAX_CHARACTERS - 4] + " ..."
    return line
