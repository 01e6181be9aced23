import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launch import auto_hook, plan_hosts
from keras_ring.launch.hosts import Host, parse_hosts
from keras_ring.launch.plan import make_plan
from keras_ring.launch.plan_environment import parse_variable
from keras_ring.launch.python_command import deaf_option, python_script
from keras_ring.launch.request import RunRequest
from keras_ring.launch.settings import check_settings
from keras_ring.launch.sharing import Machine
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import contract

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)


def _plan(**changes):
    request = {"command": ("true",), "num_ranks": 2, **changes}
    return make_plan(RunRequest(**request), ENVIRONMENT)


def test_each_option_is_read():
    """By the plan, or by what it consists of."""
    folder = Path(plan_hosts.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    unread = [
        field.name
        for field in fields(RunRequest)
        if not re.search(rf"\brequest\.{field.name}\b", text)
    ]
    assert unread == []


@pytest.mark.parametrize(
    ("machine", "hosts", "size", "notes"),
    [
        (Machine(6, ()), None, 6, ("-np auto: 6 ranks, one for each core",)),
        (Machine(1, ()), None, 1, ("-np auto: 1 rank, one for each core",)),
        (Machine(6, (), 4), None, 4, ("-np auto: 4 ranks, one for each GPU",)),
        (Machine(6, (), 4), "localhost:3", 3, ()),
    ],
)
def test_as_many_ranks_as_there_is_room_for(machine, hosts, size, notes):
    request = RunRequest(
        command=("true",), num_ranks="auto", hosts=hosts, threads=1
    )
    plan = make_plan(request, ENVIRONMENT, ("localhost",), machine)
    assert (plan.size, plan.notes) == (size, notes)


@given(
    st.lists(
        st.tuples(_NAMES, st.integers(1, 999999)),
        min_size=1,
        unique_by=lambda host: host[0],
    )
)
def test_hosts_read_back_what_was_written(hosts):
    text = ",".join(f"{name}:{slots}" for name, slots in hosts)
    assert parse_hosts(text) == tuple(Host(*host) for host in hosts)


@given(st.text(max_size=30))
def test_hosts_are_parsed_or_refused_on_one_line(text):
    try:
        hosts = parse_hosts(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert all(host.slots >= 1 for host in hosts)


@pytest.mark.parametrize("text", ["", ",", "a:", "a:x", "a:0", "a:-1", "a b"])
def test_malformed_hosts(text):
    with pytest.raises(UsageError, match=r"^-H"):
        parse_hosts(text)


def test_names_of_this_host_need_no_agents():
    request = RunRequest(
        command=("true",), hosts="localhost:2,127.0.0.1,[::1]:3,me"
    )
    plan = make_plan(request, ENVIRONMENT, {"me"})
    assert (plan.size, plan.host_ranks) == (7, ())


def test_other_hosts_have_agents():
    plan = _plan(
        hosts="node7:2,node8",
        num_ranks=3,
        command=("no", "program", "here"),
        ssh_port=22,
        port_range="30000-30009",
        interface="eth0",
        threads=3,
    )
    assert [each.host for each in plan.host_ranks] == ["node7", "node8"]
    assert plan.shell.port == 22
    assert (plan.ports, plan.interface) == ((30000, 30009), "eth0")
    assert plan.environment["KERAS_RING_PORT_RANGE"] == "30000-30009"
    # The agents share the cores of their hosts.
    assert (plan.threads, plan.cpus, plan.notes) == (3, (), ())
    assert "OMP_NUM_THREADS" not in plan.environment


def test_allocation_is_for_the_command_alone(monkeypatch):
    """`kr.run` in a notebook of an allocation runs on its host."""
    nodes = (Host("node1", 2), Host("node2", 2))
    monkeypatch.setattr(plan_hosts, "allocated_hosts", lambda _: nodes)
    assert _plan(num_ranks=3).host_ranks == ()
    here = _plan(num_ranks=3, in_allocation=True)
    assert [len(each.ranks) for each in here.host_ranks] == [2, 1]
    assert here.shell.takes_words
    assert not _plan(in_allocation=True, rsh="x").shell.takes_words
    told = r"tasks, 4 on 2 nodes; .* by -H localhost:5"
    with pytest.raises(UsageError, match=told):
        _plan(num_ranks=5, in_allocation=True)


def test_what_is_of_this_host_stays_here():
    request = RunRequest(command=("true",), hosts="node7:2")
    environment = {
        **ENVIRONMENT,
        "HOME": "/home/me",
        "SSH_CONNECTION": "x",
        "SLURM_PROCID": "0",
        "PYTHONPATH": "/mine",
        "XLA_FLAGS": "--a",
    }
    plan = make_plan(request, environment)
    assert plan.environment["PYTHONPATH"] == "/mine"
    assert plan.environment["XLA_FLAGS"] == "--a"
    for name in ("HOME", "SSH_CONNECTION", "SLURM_PROCID"):
        assert name not in plan.environment


@pytest.mark.parametrize(
    "text", ["", "1", "30000", "30009-30000", "80-90", "1024-70000", "a-b"]
)
def test_malformed_port_range(text):
    with pytest.raises(UsageError, match="--port-range"):
        _plan(hosts="node7:2", port_range=text)


def test_hosts_are_given_once():
    with pytest.raises(UsageError, match="not by both"):
        _plan(hosts="a:2", hostfile="b")


def test_size_from_hosts_and_np():
    assert _plan(num_ranks=None, hosts="localhost:3").size == 3
    assert _plan(num_ranks=2, hosts="localhost:3").size == 2
    with pytest.raises(UsageError, match="more ranks than the 3"):
        _plan(num_ranks=4, hosts="localhost:3")
    for size in (0, -1, 4097, None):
        with pytest.raises(UsageError, match="-np"):
            _plan(num_ranks=size)


@given(st.text(st.characters(exclude_characters="\0")))
def test_variable_keeps_its_value(value):
    assert parse_variable(f"NAME_1={value}") == ("NAME_1", value)


@pytest.mark.parametrize(
    "text", ["", "A", "=b", "1A=b", "A B=c", "A=\0", "KERAS_RING_RANK=1"]
)
def test_malformed_variable(text):
    with pytest.raises(UsageError, match=r"^--env"):
        parse_variable(text)


def test_options_become_variables():
    plan = _plan(
        variables=("A=b", "KERAS_RING_CYCLE_TIME=2"),
        start_timeout="7.5",
        log_level="debug",
    )
    assert plan.environment["A"] == "b"
    assert plan.environment["KERAS_RING_START_TIMEOUT"] == "7.5"
    assert plan.environment["KERAS_RING_LOG_LEVEL"] == "debug"


@pytest.mark.parametrize(("tls", "value"), [(True, "1"), (False, "0")])
def test_tls(tls, value):
    # It wins over what was exported.
    plan = _plan(tls=tls, variables=("KERAS_RING_TLS=1",))
    assert plan.environment["KERAS_RING_TLS"] == value
    assert "KERAS_RING_TLS" not in _plan().environment


def test_autotune(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = _plan(
        autotune=True,
        autotune_log="log.csv",
        autotune_warmup_samples="0",
        autotune_steps_per_sample="5",
        autotune_max_samples="8",
    )
    prefix = "KERAS_RING_AUTOTUNE"
    assert {
        name: value
        for name, value in plan.environment.items()
        if name.startswith(prefix)
    } == {
        prefix: "1",
        f"{prefix}_LOG": str(tmp_path / "log.csv"),
        f"{prefix}_WARMUP_SAMPLES": "0",
        f"{prefix}_STEPS_PER_SAMPLE": "5",
        f"{prefix}_BAYES_OPT_MAX_SAMPLES": "8",
    }
    assert prefix not in _plan().environment


def test_words_of_sets_have_one_order_on_all_ranks():
    assert "PYTHONHASHSEED" not in _plan().environment
    assert _plan(auto="1").environment["PYTHONHASHSEED"] == "0"


def test_auto():
    plan = _plan(
        auto="explain",
        auto_batch="per-rank",
        auto_learning_rate="linear",
        auto_warmup_epochs="5",
    )
    prefix = "KERAS_RING_AUTO"
    assert {
        name: value
        for name, value in plan.environment.items()
        if name.startswith(prefix)
    } == {
        prefix: "explain",
        f"{prefix}_BATCH": "per-rank",
        f"{prefix}_LEARNING_RATE": "linear",
        f"{prefix}_WARMUP_EPOCHS": "5",
    }
    assert prefix not in _plan().environment
    # It wins over what was exported, and may be asked for by that.
    exported = (f"{prefix}=explain",)
    assert _plan(auto="1", variables=exported).environment[prefix] == "1"
    plan = _plan(auto_batch="global", variables=exported)
    assert plan.environment[f"{prefix}_BATCH"] == "global"
    assert plan.stdout == "rank0"


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("auto_batch", "--batch", "global"),
        ("auto_learning_rate", "--scale-learning-rate", "keep"),
        ("auto_warmup_epochs", "--warmup-epochs", "0"),
    ],
)
def test_options_of_auto_need_it(name, option, value):
    assert _plan(**{name: value}, auto="1")
    refused = f"^{option} {value} is for --auto: add --auto$"
    with pytest.raises(UsageError, match=refused):
        _plan(**{name: value})
    with pytest.raises(UsageError, match=refused):
        _plan(**{name: value}, variables=("KERAS_RING_AUTO=0",))
    with pytest.raises(UsageError, match=r"^KERAS_RING_AUTO_\w+ is 'x': exp"):
        _plan(**{name: "x"}, auto="1")


def test_a_rank_starts_another_program():
    """The variables of `--auto` in its environment were for itself."""
    environment = {
        **ENVIRONMENT,
        contract.AUTO: "1",
        contract.AUTO_BATCH: "per-rank",
    }
    request = RunRequest(command=("true",), num_ranks=2)
    assert make_plan(request, environment).environment[contract.AUTO] == "1"
    rank = {**environment, contract.RANK: "0"}
    plan = make_plan(request, rank)
    assert not {contract.AUTO, contract.AUTO_BATCH} & set(plan.environment)
    assert plan.stdout == "all"
    plan = make_plan(replace(request, auto="1"), rank)
    assert plan.environment[contract.AUTO] == "1"


def test_whose_standard_output_is_shown():
    assert _plan().stdout == "all"
    assert _plan(stdout="rank0").stdout == "rank0"
    assert _plan(auto="1").stdout == "rank0"
    assert _plan(auto="1", stdout="all").stdout == "all"
    with pytest.raises(UsageError, match="--stdout 'rank1': expected rank0"):
        _plan(stdout="rank1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "HOOK"),
        ("", "HOOK"),
        ("/a:/b", "HOOK:/a:/b"),
        # The working directory stays where it was, and comes not of itself.
        ("/a:", "HOOK:/a:"),
        ("/a:HOOK", "HOOK:/a"),
        (":", "HOOK::"),
    ],
)
def test_the_hook_of_auto_comes_first(before, after):
    hook = auto_hook._DIRECTORY
    assert (Path(hook) / "sitecustomize.py").is_file()
    environment = {"A": "b", contract.AUTO: "1"}
    if before is not None:
        environment["PYTHONPATH"] = before.replace("HOOK", hook)
    told = auto_hook.with_hook(environment)
    assert told == {
        **environment,
        "PYTHONPATH": after.replace("HOOK", hook),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        ("", ""),
        ("/a::", "/a::"),
        ("HOOK:/a:", "/a:"),
        ("HOOK", None),
    ],
)
def test_without_auto_there_is_no_hook(before, after):
    """Not even that of the job to whose ranks the launcher belongs."""
    hook = auto_hook._DIRECTORY
    environment = {"A": "b"}
    if before is not None:
        environment["PYTHONPATH"] = before.replace("HOOK", hook)
    told = auto_hook.with_hook(environment)
    assert told["A"] == "b"
    assert told.get("PYTHONPATH") == after


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python -I train.py", "-I"),
        ("/usr/bin/python3.11 -W error -uE -m train", "-E"),
        ("python -sS -c pass", "-S"),
        ("python train.py -I", ""),
        ("python -m train -I", ""),
        ("python -X Is -WE -uc -E", ""),
        ("bash -E", ""),
        ("", ""),
    ],
)
def test_options_by_which_python_knows_no_hook(command, option):
    assert deaf_option(command.split()) == option


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("FUSION_THRESHOLD", "64MiB", "67108864"),
        ("FUSION_THRESHOLD", "-1", "0"),
        ("PLANNED_BUCKET", "16M", "16777216"),
        ("CACHE_CAPACITY", "1.5", "1024"),
        ("CYCLE_TIME", "nan", "0.5"),
        ("CYCLE_TIME", "1_0", "10"),
        ("START_TIMEOUT", "0", "60"),
        ("HEARTBEAT_TIMEOUT", "soon", "1e1"),
        ("LOG_LEVEL", "LOUD", "info"),
        ("TLS", "yes", "1"),
        ("AUTOTUNE", "on", "1"),
        ("AUTOTUNE_STEPS_PER_SAMPLE", "0", "1"),
        ("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "1", "20"),
        ("AUTOTUNE_CACHE", "here", "/there"),
        ("PORT_RANGE", "9-8", "30000-30003"),
        ("AUTO", "on", "explain"),
        ("AUTO_BATCH", "rank", "per-rank"),
    ],
)
def test_settings(name, bad, good):
    check_settings({f"KERAS_RING_{name}": good})
    with pytest.raises(UsageError, match=f"KERAS_RING_{name} is '{bad}'"):
        check_settings({f"KERAS_RING_{name}": bad})


def test_commands_that_cannot_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    python = sys.executable
    make_plan(
        RunRequest(command=(python, "train.py"), num_ranks=1), ENVIRONMENT
    )
    for command, message in (
        ((), "no command"),
        (("no-such-program",), "program not found"),
        (("./train.py",), "-- python ./train.py"),
        ((python, "-u", "nope.py"), "script not found: 'nope.py'"),
    ):
        with pytest.raises(UsageError, match=message):
            _plan(command=command)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --x y.py", "train.py"),
        ("/usr/bin/python3.11 -u -W error -X dev train.py", "train.py"),
        ("python -m package.train a.py", None),
        ("python -c pass a.py", None),
        ("python -um package a.py", None),
        ("python", None),
        ("bash train.py", None),
    ],
)
def test_python_script(command, script):
    assert python_script(command.split()) == script


def test_contract_drops_another_jobs_variables_and_hides_the_key():
    key = "ab" * 32
    outer = dict.fromkeys(contract.LAUNCHER_OWNED, "outer")
    rank = contract.RankContract(
        rank=1,
        size=4,
        rendezvous="127.0.0.1:9",
        job_key=key,
        error_file="/tmp/e",
        host_id="h",
    )
    environment = rank.environment({**outer, "KEEP": "1"})
    assert "outer" not in environment.values()
    assert environment["KEEP"] == "1"
    assert contract.RENDEZVOUS_FD not in environment
    assert environment["KERAS_RING_JOB_KEY"] == key
    assert environment["KERAS_RING_HOST_ID"] == "h"
    assert environment["KERAS_DISTRIBUTION_PROCESS_ID"] == "1"
    assert environment["KERAS_DISTRIBUTION_NUM_PROCESSES"] == "4"
    assert key not in repr(rank)


def test_the_file_of_a_timeline_is_the_same_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = _plan(timeline="t.json")
    assert plan.timeline == tmp_path / "t.json"
    assert plan.environment[contract.TIMELINE] == str(tmp_path / "t.json")
    assert _plan().timeline is None


def test_a_timeline_may_be_asked_for_by_a_variable(tmp_path):
    path = tmp_path / "t.json"
    environment = {**ENVIRONMENT, contract.TIMELINE: str(path)}
    request = RunRequest(command=("true",), num_ranks=2)
    plan = make_plan(request, environment)
    assert plan.timeline == path
    # A rank has that of its own job, which another must not write.
    plan = make_plan(request, {**environment, contract.RANK: "0"})
    assert plan.timeline is None
    assert contract.TIMELINE not in plan.environment
