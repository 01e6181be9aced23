"""Who the members of an elastic job are, and which steps count."""

import dataclasses
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launch.elastic.authority import Authority
from keras_ring.launch.elastic.messages import (
    MemberReport,
    MessageError,
    NextGeneration,
    Outcome,
    Settlement,
    Stand,
    StepReport,
    decode_report,
    encode_end,
    encode_next,
    encode_over,
    encode_report,
    encode_waiting,
)
from keras_ring.launch.elastic.settlement import SettlementError, settle

_IN_STEP = StepReport(settled=4)
_BEGUN = StepReport(settled=4, begun=True)
_WHOLE = StepReport(settled=4, begun=True, whole=True)
_AHEAD = StepReport(settled=5)
_AHEAD_BEGUN = StepReport(settled=5, begun=True)


def _settled(*rows):
    (settlement,) = settle(
        [MemberReport(0, steps={"g": row} if row else {}) for row in rows]
    )
    return settlement.step, settlement.outcome


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Nobody has begun: nothing is lost.
        ((_IN_STEP, _IN_STEP), (4, Outcome.OPEN)),
        # All have everything.
        ((_WHOLE, _WHOLE), (4, Outcome.COMMITTED)),
        ((_WHOLE,), (4, Outcome.COMMITTED)),
        # Somebody lacks something.
        ((_WHOLE, _BEGUN), (4, Outcome.DISCARDED)),
        ((_WHOLE, _IN_STEP), (4, Outcome.DISCARDED)),
        ((_BEGUN, _IN_STEP, _IN_STEP), (4, Outcome.DISCARDED)),
        # Who waits for a commit that another one has, commits.
        ((_WHOLE, _AHEAD), (5, Outcome.OPEN)),
        ((_WHOLE, _AHEAD_BEGUN), (5, Outcome.DISCARDED)),
        # A commit of nothing, as of an optimizer that has not been used.
        ((StepReport(whole=True), None), (0, Outcome.OPEN)),
        ((None, StepReport(begun=True)), (0, Outcome.DISCARDED)),
    ],
)
def test_settle(rows, expected):
    assert _settled(*rows) == expected
    assert _settled(*reversed(rows)) == expected


@pytest.mark.parametrize(
    "rows",
    [(_IN_STEP, _AHEAD), (_BEGUN, _AHEAD), (StepReport(settled=3), _AHEAD)],
)
def test_settle_refuses_what_cannot_be(rows):
    with pytest.raises(SettlementError, match="commit group g"):
        _settled(*rows)


def test_groups_are_settled_by_themselves():
    reports = [
        MemberReport(0, steps={"a": _WHOLE, "b": _IN_STEP}),
        MemberReport(0, steps={"b": _BEGUN, "a": _WHOLE}),
    ]
    assert settle(reports) == (
        Settlement("a", 4, Outcome.COMMITTED),
        Settlement("b", 4, Outcome.DISCARDED),
    )


def _report(generation, member, **steps):
    return MemberReport(
        generation, f"10.0.0.{member}", 5000 + member, "", steps
    )


def test_those_who_live_go_on():
    authority = Authority(range(4))
    assert authority.on_report(3, _report(0, 3)) == {}
    assert authority.on_deaths([1]) == {}
    assert authority.on_report(0, _report(0, 0)) == {}
    # Once the last has reported.
    messages = authority.on_report(2, _report(0, 2))
    assert messages == {
        member: encode_next(
            NextGeneration(1, rank, (0, 2, 3), "10.0.0.0", 5000)
        )
        for rank, member in enumerate((0, 2, 3))
    }
    assert authority.members == (0, 2, 3)
    assert authority.changes[-1].lost == (1,)


def test_the_first_may_die_and_others_while_they_meet():
    authority = Authority(range(4))
    authority.on_deaths([0])
    authority.on_report(1, _report(0, 1))
    authority.on_report(2, _report(0, 2))
    # It has reported, and dies before the last does.
    assert authority.on_deaths([1]) == {}
    messages = authority.on_report(3, _report(0, 3))
    assert messages.keys() == {2, 3}
    assert messages[2] == encode_next(
        NextGeneration(1, 0, (2, 3), "10.0.0.2", 5002)
    )
    # The next generation cannot form: its rank 0 dies.
    authority.on_report(3, _report(1, 3))
    messages = authority.on_deaths([2])
    assert messages == {
        3: encode_next(NextGeneration(2, 0, (3,), "10.0.0.3", 5003))
    }
    assert authority.on_deaths([3]) == {}


def test_a_death_that_nobody_has_noticed_changes_nothing():
    authority = Authority(range(3))
    assert authority.on_deaths([2]) == {}
    assert authority.members == (0, 1, 2)


def test_those_that_cannot_see_it_are_told_that_a_generation_is_over():
    authority = Authority(range(5))
    authority.on_report(3, _report(0, 3))
    waits = dataclasses.replace(_report(0, 4), stand=Stand.ADMITS)
    authority.on_report(4, waits)
    # Who has left the generation need not be told. Who is between two steps
    # waits for the lost ones.
    assert authority.on_deaths([1, 2], why="their host is gone") == {
        member: encode_over(0, "their host is gone") for member in (0, 4)
    }
    authority.on_report(4, _report(0, 4))
    messages = authority.on_report(0, _report(0, 0))
    assert messages.keys() == {0, 3, 4}
    # Those that wait to come in are nobody's loss.
    joins = dataclasses.replace(_report(0, 5), stand=Stand.JOINS)
    authority.on_report(5, joins)
    assert authority.on_deaths([5], why="its host is gone") == {}
    # A job that is over has no generation.
    authority.end("enough")
    assert authority.on_deaths([3], why="its host is gone") == {}


def test_some_leave_between_two_steps():
    authority = Authority(range(3))
    authority.leave([0, 1])
    told = {member: encode_waiting(2) for member in range(3)}
    assert authority.tell_waiting() == told
    assert authority.tell_waiting() == {}
    between = [
        dataclasses.replace(_report(0, member), stand=Stand.ADMITS)
        for member in range(3)
    ]
    joins = dataclasses.replace(_report(0, 3), stand=Stand.JOINS)
    authority.on_report(3, joins)
    for member in (2, 1):
        assert authority.on_report(member, between[member]) == {}
    # They meet where the first of those is that stay. Who leaves hears nothing.
    following = [
        NextGeneration(1, rank, (2, 3), "10.0.0.2", 5002, admitted=True)
        for rank in (0, 1)
    ]
    assert authority.on_report(0, between[0]) == {
        2: encode_next(following[0]),
        3: encode_next(following[1]),
    }
    change = authority.changes[-1]
    assert (change.left, change.joined, change.lost) == ((0, 1), (3,), ())
    # That they are killed then is no loss of anybody.
    assert authority.on_deaths([0, 1], why="their host goes") == {}
    assert authority.tell_waiting() == {}


def test_no_one_leaves_in_the_midst_of_a_step():
    authority = Authority(range(3))
    authority.leave([1])
    authority.on_deaths([2])
    assert authority.on_report(0, _report(0, 0)) == {}
    messages = authority.on_report(1, _report(0, 1))
    assert messages.keys() == {0, 1}
    assert authority.members == (0, 1)
    # They are told once more.
    assert authority.tell_waiting().keys() == {0, 1}


def test_the_last_does_not_leave():
    authority = Authority(range(2))
    authority.leave([0, 1])
    for member in (0, 1):
        report = dataclasses.replace(_report(0, member), stand=Stand.ADMITS)
        messages = authority.on_report(member, report)
    assert messages.keys() == {0, 1}
    assert authority.changes[-1].left == ()


def test_who_lives_is_never_left_out():
    authority = Authority(range(3))
    authority.on_report(0, _report(0, 0))
    assert authority.on_report(1, _report(0, 1)) == {}
    # Without a death all of them meet again.
    assert authority.on_report(2, _report(0, 2)).keys() == {0, 1, 2}
    assert authority.changes[-1].lost == ()


def test_contradictions_end_the_job():
    authority = Authority(range(2))
    messages = authority.on_report(0, _report(7, 0))
    end = encode_end("rank 0 has reported on generation 7, in generation 0")
    assert messages == {0: end}
    assert authority.on_report(1, _report(0, 1)) == {1: end}
    authority = Authority(range(2))
    authority.on_report(0, _report(0, 0, g=_IN_STEP))
    messages = authority.on_report(1, _report(0, 1, g=_AHEAD))
    assert messages.keys() == {0, 1}
    assert all(message[:1] == end[:1] for message in messages.values())


def test_an_end_is_told_to_who_reports():
    authority = Authority(range(3))
    authority.on_report(0, _report(0, 0))
    assert authority.awaited == (1, 2)
    end = encode_end("rank 1 has exited with code 3")
    assert authority.end("rank 1 has exited with code 3") == {0: end}
    assert authority.awaited == ()
    assert authority.on_deaths([1]) == {}
    assert authority.on_report(2, _report(0, 2)) == {2: end}
    assert authority.changes == []


def _between(generation, member, **steps):
    report = _report(generation, member, **steps)
    return dataclasses.replace(report, stand=Stand.ADMITS)


def _joins(member):
    return dataclasses.replace(_report(0, member), stand=Stand.JOINS)


def test_who_waits_comes_in_when_all_are_between_two_steps():
    authority = Authority(range(2))
    assert authority.on_report(2, _joins(2)) == {}
    told = dict.fromkeys((0, 1), encode_waiting(1))
    assert authority.tell_waiting() == told
    assert authority.tell_waiting() == {}  # once
    authority.on_report(3, _joins(3))
    assert authority.tell_waiting().keys() == {0, 1}
    row = StepReport(settled=7)
    assert authority.on_report(0, _between(0, 0, g=row)) == {}
    messages = authority.on_report(1, _between(0, 1, g=row))
    settled = (Settlement("g", 7, Outcome.OPEN),)
    members = (0, 1, 2, 3)
    assert messages == {
        member: encode_next(
            NextGeneration(1, member, members, "10.0.0.0", 5000, settled, True)
        )
        for member in members
    }
    assert authority.changes[-1].joined == (2, 3)
    assert authority.tell_waiting() == {}
    # They are members as others are.
    authority.on_deaths([0])
    authority.on_report(1, _report(1, 1))
    authority.on_report(2, _report(1, 2))
    assert authority.on_report(3, _report(1, 3)).keys() == {1, 2, 3}
    assert authority.members == (1, 2, 3)


def test_nobody_comes_in_during_a_step():
    authority = Authority(range(3))
    authority.on_report(3, _joins(3))
    authority.tell_waiting()
    authority.on_report(0, _between(0, 0))
    assert authority.awaited == ()  # the others come to the end of their step
    authority.on_deaths([1])
    messages = authority.on_report(2, _report(0, 2))
    assert messages == {
        member: encode_next(NextGeneration(1, rank, (0, 2), "10.0.0.0", 5000))
        for rank, member in enumerate((0, 2))
    }
    assert authority.changes[-1].joined == ()
    # The ranks of each generation are told anew.
    assert authority.tell_waiting() == dict.fromkeys((0, 2), encode_waiting(1))
    authority.on_report(2, _between(1, 2))
    assert authority.on_report(0, _between(1, 0)).keys() == {0, 2, 3}


def test_who_is_between_two_steps_may_notice_a_loss():
    authority = Authority(range(3))
    authority.on_report(0, _between(0, 0))
    assert authority.awaited == ()
    # Rank 1 does not answer any more: its death has to be seen.
    authority.on_report(0, _report(0, 0))
    assert authority.awaited == (1, 2)
    authority.on_report(2, _report(0, 2))
    assert authority.on_deaths([1]).keys() == {0, 2}
    # A second report crosses the answer to the first one.
    assert authority.on_report(0, _report(0, 0)) == {}
    assert authority.awaited == ()


def test_who_has_ended_does_not_come_in():
    authority = Authority(range(1))
    authority.on_report(1, _joins(1))
    assert authority.tell_waiting() == {0: encode_waiting(1)}
    authority.on_deaths([1])
    assert authority.tell_waiting() == {0: encode_waiting(0)}
    messages = authority.on_report(0, _between(0, 0))
    assert messages == {
        0: encode_next(
            NextGeneration(1, 0, (0,), "10.0.0.0", 5000, admitted=True)
        )
    }


def test_too_few_wait_for_others():
    authority = Authority(range(2), least=2)
    authority.on_deaths([1])
    # It is to come to the end of its step, though nobody waits yet.
    assert authority.on_report(0, _report(0, 0)).keys() == {0}
    assert authority.tell_waiting() == {0: encode_waiting(1)}
    assert authority.on_report(0, _between(1, 0)) == {}
    assert authority.on_report(2, _joins(2)).keys() == {0, 2}


def test_the_end_is_told_to_those_who_wait_to_come_in():
    authority = Authority(range(1))
    authority.on_report(1, _joins(1))
    assert authority.end("over") == {1: encode_end("over")}
    assert authority.on_report(2, _joins(2)) == {2: encode_end("over")}
    assert authority.tell_waiting() == {}


def test_who_is_awaited():
    authority = Authority(range(3))
    assert authority.awaited == ()
    authority.on_report(0, _report(0, 0))
    authority.on_deaths([1])
    assert authority.awaited == (2,)
    assert authority.on_deaths([2]).keys() == {0}
    assert authority.awaited == ()


_TEXT = st.text(string.printable, max_size=20)
_NUMBER = st.integers(0, 2**63)


@given(
    st.builds(
        MemberReport,
        generation=_NUMBER,
        host=_TEXT,
        port=st.integers(0, 65535),
        cause=_TEXT,
        steps=st.dictionaries(
            _TEXT,
            st.builds(
                StepReport,
                settled=_NUMBER,
                begun=st.booleans(),
                whole=st.booleans(),
            ),
            max_size=4,
        ),
        stand=st.sampled_from(Stand),
    )
)
def test_a_report_comes_as_it_was(report):
    assert decode_report(encode_report(report)) == report


@given(st.binary(max_size=60))
def test_other_bytes_are_errors(data):
    for message in (data, b"\x01" + data):
        try:
            report = decode_report(message)
        except MessageError:
            continue
        assert isinstance(report, MemberReport)


def test_a_message_that_ends_too_early_is_an_error():
    message = encode_report(_report(300, 1, g=_WHOLE))
    for length in range(len(message)):
        with pytest.raises(MessageError):
            decode_report(message[:length])
    with pytest.raises(MessageError, match="1 more bytes"):
        decode_report(message + b"x")
