"""Puts the cause first in the errors of compiled steps and of collectives.

The text of an error in a compiled step begins with the Python stack of the
node, which takes kilobytes. A program that catches the error and logs its first
line would not show the rank that was lost, or what was wrong on this one.

This module also makes the exceptions of collectives of arrays exceptions of
TensorFlow.
"""

from __future__ import annotations

import tensorflow as tf

from keras_ring.core import failures, last_exception
from keras_ring.protocol.error_text import cause

# The error of an operation whose arguments have the wrong shape. A class of our
# own, below, has the name that TensorFlow gives to this one.
InvalidArgument = tf.errors.InvalidArgumentError

_HOOKED = "_keras_ring_hooked"
_NOTED = "_keras_ring_noted"
# Prefixes that TensorFlow adds to the text of a kernel: in a compiled function
# or a session, in a function whose nodes it does not find, and in eager code.
_COMPILED = "Graph execution error:"
_FUNCTION = "{{function_node "
_EAGER = "{{function_node __wrapped__KerasRing"
_OURS = "KerasRing"


def install() -> None:
    """Changes the message of `tf.errors.OpError`. One call is enough."""
    message = tf.errors.OpError.message.fget
    if hasattr(message, _HOOKED):
        return

    def cause_first(self: tf.errors.OpError) -> str:
        """The error message that describes the error."""
        text: str = message(self)
        # TensorFlow itself reads the message of each error that it raises.
        if not hasattr(self, _NOTED):
            setattr(self, _NOTED, True)
            if not isinstance(self, _EXPECTED) and _ASKED not in text:
                last_exception.note(self)
        return _cause_first(text)

    setattr(cause_first, _HOOKED, True)
    tf.errors.OpError.message = property(cause_first)
    failures.make_by(_error_of)


# Errors that end iterations and steps.
_EXPECTED = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
# Part of errors that TensorFlow raises and handles for each node it traces.
_ASKED = "' has no attr named '"


def _class_of(code: str) -> type[Exception]:
    """Returns a class for a code, derived from ours and TensorFlow's."""
    number = getattr(tf.errors, code)
    theirs = tf.compat.v1.errors.exception_type_from_error_code(number)

    def __init__(self: tf.errors.OpError, message: str) -> None:
        theirs.__init__(self, None, None, message)

    members = {"__init__": __init__, "__module__": __name__, "code": code}
    return type(theirs.__name__, (failures.class_of(code), theirs), members)


# Exception classes by code. Pickles find them by their names in this module.
_CLASSES = {
    code: _class_of(code)
    for code in dir(tf.errors)
    if code.isupper() and code != "OK"
}
globals().update({each.__name__: each for each in _CLASSES.values()})


def _error_of(code: str, message: str) -> Exception:
    return _CLASSES.get(code, _CLASSES["UNKNOWN"])(message)


def _cause_first(text: str) -> str:
    if text.startswith(_EAGER):
        return cause(text)
    of_function = text.startswith(_FUNCTION) and _OURS in text
    if not of_function and not text.startswith(_COMPILED):
        return text
    first = cause(text) + "\n\n"
    # TensorFlow may have read a changed message already, and added to it.
    return first + text.replace(first, "", 1)
