"""The `keras-ring` command says what a mistyped word may have meant."""

import pytest

from keras_ring.launch.cli import cli

NOT_THERE = [
    ("rnu -np 2", "no command 'rnu' (did you mean run?): choose from run, "),
    ("topp", "no command 'topp' (did you mean top?)"),
    ("jobs", "no command 'jobs': choose from run, check"),
    ("--versoin", "COMMAND"),
    ("run --num-procs 2 -- x", "no option --num-procs (did you mean --num-p"),
    ("run --hostfle=x -- y", "no option --hostfle (did you mean --hostfile?)"),
    ("run --timelime x -- y", "(did you mean --timeline?): `keras-ring run --"),
    ("run --zzz -- y", "has no option --zzz: `keras-ring run --help` lists"),
    # No option is abbreviated, so that later ones change nothing.
    ("run --time x -- y", "no option --time"),
    (
        "run -np four -- x",
        "-np/--num-proc: 'four' is no number of ranks;",
    ),
    ("run -np aoto -- x", "'aoto' is no number of ranks (did you mean auto?)"),
    ("check nodes", "keras-ring check takes no argument 'nodes' here"),
    ("template slrum", "no engine 'slrum' (did you mean slurm?)"),
    ("bench grupped", "no kind 'grupped' (did you mean grouped?)"),
    ("bench step --framework trch", "no value 'trch' (did you mean torch?)"),
]


@pytest.mark.parametrize(
    ("words", "text"), NOT_THERE, ids=[words for words, _ in NOT_THERE]
)
def test_a_mistyped_word_is_told(capsys, words, text):
    assert cli.main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("keras-ring: error: ")
    assert len(said.splitlines()) == 1
    assert text in said


# As Horovod's command spells them, and as this one does.
SPELLINGS = [
    ("--num-proc 3", "-np 3"),
    ("-np 4 --hosts localhost:4", "-np 4 -H localhost:4"),
    ("-np 1 -p 2222", "-np 1 --ssh-port 2222"),
    ("-np 1 --output-filename out", "-np 1 --output-dir out"),
    ("-np 1 --timeline-filename t.json", "-np 1 --timeline t.json"),
    ("-np 1 --network-interfaces lo", "-np 1 --interface lo"),
    ("-np 1 --network-interface lo", "-np 1 --interface lo"),
    ("-np 1 --verbose", "-np 1 --log-level info"),
]


@pytest.mark.parametrize(
    ("other", "ours"), SPELLINGS, ids=[other for other, _ in SPELLINGS]
)
def test_options_of_horovod_mean_the_same(other, ours):
    parser = cli.parser()
    first, second = (
        vars(parser.parse_args(["run", *words.split(), "--", "true"]))
        for words in (other, ours)
    )
    assert first == second


def test_what_follows_the_program_is_its_own():
    parsed = cli.parser().parse_args(
        ["run", "-np", "1", "train.py", "--num-procs", "2", "-np", "3"]
    )
    assert parsed.command == ["train.py", "--num-procs", "2", "-np", "3"]


@pytest.mark.parametrize("verb", ["", "run", "check", "top", "bench"])
def test_the_help_has_an_example(capsys, verb):
    with pytest.raises(SystemExit) as end:
        cli.main([*verb.split(), "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "\nFor example: keras-ring " in shown
