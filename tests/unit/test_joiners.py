"""When processes are started that join a job."""

from keras_ring.launch.elastic.joiners import Joiners


def test_as_many_as_the_job_has_ranks_too_few():
    joiners = Joiners(3, 4)
    assert joiners.start(3) == (3,)
    assert joiners.start(3) == ()  # it waits yet
    assert joiners.start(1) == (4, 5)
    assert joiners.waiting == {3, 4, 5}
    joiners.on_join(3)
    assert joiners.start(2) == ()
    # More have come in than one could know of.
    joiners.on_join(4)
    joiners.on_join(5)
    assert joiners.start(4) == joiners.start(5) == ()
    assert joiners.start(3) == (6,)


def test_no_more_than_there_is_room_for():
    joiners = Joiners(1, 4)
    assert joiners.start(1, 0) == ()
    assert joiners.start(1, 2) == (1, 2)
    assert joiners.start(1, 2) == (3,)
    # Those that are lost with their hosts are no failures.
    for number in (1, 2, 3):
        joiners.on_end(number, failed=False)
    assert joiners.start(1, 9) == (4, 5, 6)


def test_none_are_started_after_some_that_have_failed():
    joiners = Joiners(1, 2)
    for number in (1, 2):
        assert joiners.start(1) == (number,)
        joiners.on_end(number)
    assert joiners.start(1) == (3,)
    joiners.on_join(3)  # the count begins anew
    for number in (4, 5, 6):
        assert joiners.may_come
        assert joiners.start(1) == (number,)
        joiners.on_end(number)
    assert not joiners.may_come
    assert joiners.start(1) == ()


def test_none_are_started_if_none_are_wanted():
    assert Joiners(2, 0).start(1) == ()
    assert not Joiners(2, 0).may_come
    joiners = Joiners(2, 2)
    joiners.close()
    assert joiners.start(1) == ()
