"""How long the launcher waits for ranks and hosts, and what it then does."""

import math
import signal

import pytest

from keras_ring.launch import ending as ending_module
from keras_ring.launch.ending import Ending
from keras_ring.launch.patience import Patience
from keras_ring.launch.plan import make_plan
from keras_ring.launch.request import RunRequest
from keras_ring.launch.usage import UsageError
from keras_ring.protocol.time_limits import LIMITS


@pytest.fixture
def clock(monkeypatch):
    """Seconds of `time.monotonic`, which only tests advance."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(ending_module, "time", clock)
    return clock


def _played(ending, clock, sent, seconds):
    """Returns what is sent within these seconds, and when."""
    start = clock.now
    played = []
    while ending.deadline is not None and ending.deadline <= start + seconds:
        clock.now = ending.deadline
        before = len(sent)
        ending.follow()
        played += [(clock.now - start, each) for each in sent[before:]]
    return played


def _ending(**patience):
    sent = []
    return Ending(Patience(**patience), sent.append), sent


TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_after_a_signal(clock):
    ending, sent = _ending(grace_period=60.0)
    ending.on_request(signal.SIGTERM)
    assert sent == [TERM]
    assert _played(ending, clock, sent, 61) == [(60.0, KILL)]
    assert ending.killed == (
        "60 s after SIGTERM (--grace-period gives them more time)"
    )


def test_never(clock):
    ending, sent = _ending(grace_period=math.inf, failure_grace=math.inf)
    ending.on_request(signal.SIGINT)
    assert ending.deadline is None
    ending.on_request(signal.SIGINT)
    assert _played(ending, clock, sent, 1) == [(0.0, KILL)]
    assert ending.killed == "at SIGINT to keras-ring"
    ending, sent = _ending(failure_grace=math.inf)
    ending.on_failure()
    assert _played(ending, clock, sent, 1e9) == [(2.0, TERM)]
    ending.on_request(signal.SIGTERM)
    assert _played(ending, clock, sent, 1) == [(0.0, KILL)]
    ending, sent = _ending(failure_wait=math.inf)
    ending.on_failure()
    assert ending.deadline is None


def test_after_a_failure(clock):
    ending, sent = _ending(failure_wait=5.0, failure_grace=30.0)
    ending.on_failure()
    assert _played(ending, clock, sent, 36) == [(5.0, TERM), (35.0, KILL)]
    assert "30 s after SIGTERM (--failure-grace gives" in ending.killed


@pytest.mark.parametrize(("text", "grace"), [(None, 1.0), ("20", 20.0)])
def test_after_the_loss_of_a_host(clock, text, grace):
    options = {"KERAS_RING_FAILURE_GRACE": text} if text else {}
    sent = []
    ending = Ending(Patience.of(options, {}), sent.append)
    ending.on_loss()
    assert _played(ending, clock, sent, 21)[:2] == [(0.0, TERM), (grace, KILL)]


def test_options_come_before_variables():
    options = {"KERAS_RING_GRACE_PERIOD": "never"}
    variables = {"KERAS_RING_GRACE_PERIOD": "7", "KERAS_RING_HOST_TIMEOUT": "9"}
    assert Patience.of(options, variables) == Patience(
        grace_period=math.inf, host_timeout=9.0
    )
    assert Patience.of({}, variables).grace_period == 7.0


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("text", ["-1", "1_0", " 5", "soon", "nan", "1e9"])
def test_limits_that_make_no_sense(name, text):
    option = LIMITS[name].option
    with pytest.raises(UsageError, match=f"{option} {text!r}: expected second"):
        Patience.of({name: text}, {})
    with pytest.raises(UsageError, match=f"{name} {text!r}: expected seconds"):
        Patience.of({}, {name: text})


def test_a_plan_has_them_and_ranks_have_not():
    def plan(**options):
        request = RunRequest(command=("true",), **options)
        path = {"PATH": "/usr/bin:/bin", "KERAS_RING_HOST_TIMEOUT": "30"}
        return make_plan(request, path)

    limits = {"KERAS_RING_CONNECT_TIMEOUT": "60.5"}
    there = plan(hosts="node1:1,node2:1", time_limits=limits)
    assert there.patience.host_timeout == 30.0
    assert "ConnectTimeout=61" in there.shell.start_agent("node1")
    here = plan(num_ranks=1)
    assert not [name for name in here.environment if name in LIMITS]


def test_hosts_reach_each_other_in_a_part_of_the_time_of_ssh():
    assert Patience().reach_timeout == pytest.approx(10 / 3)
    assert Patience(connect_timeout=1.0).reach_timeout == 3.0
    assert Patience(connect_timeout=60.0).reach_timeout == 20.0
