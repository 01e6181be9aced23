"""Texts as TensorFlow 2.15 and 2.21 make them, and what is left of them."""

import pytest

from keras_ring.protocol.error_text import cause, one_line

STACK = """Detected at node sequential_1/embedding_1/GatherV2 defined at (most \
recent call last):
  File "/home/me/train.py", line 7, in <module>

  File "/site-packages/keras/src/layers/layer.py", line 1002, in __call__

  File "<string>", line 102, in keras_ring_allreduce

"""
NODE = "\t [[{{node sequential_1/embedding_1/GatherV2}}]]"
GATHER = "indices[0,0] = 99999 is not in [0, 10)"
IN_LAYER = f"{GATHER} (node sequential_1/embedding_1/GatherV2)"

# name -> (text, what is left)
TEXTS = {
    "compiled": (
        f"Graph execution error:\n\n{STACK}{GATHER}\n{NODE} [Op:__inference_4]",
        IN_LAYER,
    ),
    "compiled, as of another version": (
        "Graph execution error:\n\n"
        "Detected at node 'm/embedding/Gather' defined at (most recent call "
        'last):\n    File "train.py", line 7, in <module>\n'
        "      model.fit(x, y,\n"
        "                batch_size=4)\n"
        "Node: 'm/embedding/Gather'\n"
        f"{GATHER}\n\t [[{{{{node m/embedding/Gather}}}}]] [Op:__inference_4]",
        f"{GATHER} (node m/embedding/Gather)",
    ),
    "several root errors": (
        f"Graph execution error:\n\n{STACK}Detected at node b defined at (most "
        "recent call last):\n<stack traces unavailable>\n"
        f"2 root error(s) found.\n  (0) INVALID_ARGUMENT:  {GATHER}\n{NODE}\n"
        f"\t [[b]]\n  (1) INVALID_ARGUMENT:  {GATHER}\n{NODE}\n"
        "0 successful operations.\n0 derived errors ignored. [Op:__inference]",
        IN_LAYER,
    ),
    "eager": (
        "{{function_node __wrapped__KerasRingAllreduce_device_/job:localhost/"
        "replica:0/task:0/device:CPU:0}} lost rank 2 (host a, pid 3): it closed"
        " [Op:KerasRingAllreduce] name: ",
        "lost rank 2 (host a, pid 3): it closed",
    ),
    "a collective in a compiled step": (
        "Graph execution error:\n\nDetected at node KerasRingAllreduce_1 "
        "defined at (most recent call last):\n"
        '  File "/home/me/train.py", line 7, in <module>\n\n'
        "lost rank 2 (host a, pid 3): it closed\n"
        "\t [[{{node KerasRingAllreduce_1}}]] [Op:__inference_4]",
        "lost rank 2 (host a, pid 3): it closed",
    ),
    "session": (
        "Graph execution error:\n\nDetected at node 'Gather' defined at (most "
        'recent call last):\n    File "train.py", line 3, in <module>\n'
        f"Node: 'Gather'\n{GATHER}\n\t [[{{{{node Gather}}}}]]\n\n"
        "Original stack trace for 'Gather':\n"
        '  File "train.py", line 3, in <module>\n    tf.gather(x, i)\n',
        f"{GATHER} (node Gather)",
    ),
    "a function of Python in a dataset": (
        "{{function_node __wrapped__IteratorGetNext_output_types_1}} "
        "ValueError: bad row 3\nTraceback (most recent call last):\n\n"
        '  File "script_ops.py", line 270, in __call__\n'
        "    ret = func(*args)\n          ^^^^^^^^^^^\n\n"
        '  File "train.py", line 9, in rows\n    raise ValueError("bad")\n\n'
        "ValueError: bad row 3\n\n\n\t [[{{node PyFunc}}]] "
        "[Op:IteratorGetNext] name: ",
        "ValueError: bad row 3 (node PyFunc)",
    ),
    "user code": (
        'in user code:\n\n    File "train.py", line 3, in step  *\n'
        '        return loss(x)\n    File "train.py", line 9, in loss  *\n'
        "        raise ValueError(\n\n    ValueError: two\n    lines\n",
        "ValueError: two\n    lines",
    ),
    "a matrix": (
        "expected\n[[1. 2.]]\n[[a b]]",
        "expected\n[[1. 2.]]\n[[a b]]",
    ),
    "colored": ("\x1b[1mwrong shape\x1b[0m", "wrong shape"),
    "nothing else": ("Graph execution error:", "Graph execution error:"),
    "plain": ("no such file", "no such file"),
    "empty": ("", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_cause_is_left(name):
    text, expected = TEXTS[name]
    assert cause(text) == expected
    # An error that tells of another rank's holds such a text already.
    assert cause(expected) == expected


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"nothing else"}))
def test_of_a_text_that_begins_with_its_cause(name):
    text, expected = TEXTS[name]
    assert cause(f"{expected}\n\n{text}") == expected


def test_one_line_is_short_and_says_that_it_was_cut():
    assert one_line("E", "two\nlines") == "E: two lines"
    assert one_line("E", "") == "E"
    long = one_line("E", "x" * 600)
    assert len(long) == 500
    assert long.endswith("x ...")
