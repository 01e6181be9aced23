import os
import signal
import time
import unittest
import uuid

import pytest

from tests.harness import ANY, RanksFailed, RunningRanks, run_ranks
from tests.harness import rank_functions as functions

pytestmark = pytest.mark.timeout(60)


def test_each_rank_returns_its_value():
    result = run_ranks(functions.add, 3, args=(2, 3), deadline=30)
    assert result.values == [(0, 5), (1, 5), (2, 5)]
    assert result.exit_codes == [0, 0, 0]
    assert all(end >= result.start_time for end in result.end_times)


def test_hosts_reach_the_ranks():
    result = run_ranks(functions.host, 3, hosts=[0, 0, 1], deadline=30)
    assert result.values == ["host0", "host0", "host1"]


def test_a_failure_ends_the_others_and_is_told_first():
    started = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        run_ranks(functions.fail_on, 3, args=(1,), deadline=40)
    assert time.monotonic() - started < 20
    result = caught.value.result
    assert result.first == 1
    assert result.exit_codes == [-signal.SIGTERM, 10, -signal.SIGTERM]
    assert "ValueError: the reason" in result.ranks[1].traceback
    ranks = [line for line in str(caught.value).splitlines() if "(pid" in line]
    assert ranks[0].strip().startswith("rank 1 ")


def test_a_hang_prints_where_it_is():
    with pytest.raises(RanksFailed) as caught:
        run_ranks(functions.sleep, 2, deadline=2)
    assert caught.value.result.timed_out
    assert caught.value.result.wall < 10
    for rank in caught.value.result.ranks:
        assert "rank_functions.py" in rank.stderr
        assert "in sleep" in rank.stderr


def test_skip_skips():
    with pytest.raises(unittest.SkipTest, match="no such device"):
        run_ranks(functions.skip, 2, deadline=30)


def test_left_process_fails_the_run_and_is_killed():
    with pytest.raises(RanksFailed, match=r"1 process\(es\) left") as caught:
        run_ranks(functions.leave_process, 1, deadline=30)
    pid = caught.value.result.values[0]
    assert not os.path.exists(f"/proc/{pid}") or "Z" in _state(pid)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def test_left_shared_memory_fails_the_run():
    name = f"keras_ring_harness_{uuid.uuid4().hex}"
    try:
        with pytest.raises(RanksFailed, match=name):
            run_ranks(
                functions.leave_shared_memory, 2, args=(name,), deadline=30
            )
    finally:
        os.unlink(f"/dev/shm/{name}")


def test_a_killed_rank_is_expected_and_timed():
    killed = []

    def harm(ranks: RunningRanks) -> None:
        ranks.wait_for(1, "ready")
        killed.append(ranks.send(1, signal.SIGKILL))
        ranks.wait_for(0, "ready")
        # Two deaths that are seen at one look have no order.
        time.sleep(0.5)
        ranks.send(0, signal.SIGTERM)

    result = run_ranks(
        functions.wait_for_harm,
        2,
        expect={1: -signal.SIGKILL, 0: (10, -signal.SIGTERM)},
        on_start=harm,
        deadline=30,
    )
    assert result.first == 1
    assert 0 < result.end_times[1] - killed[0] < 1


def test_what_on_start_raises_fails_the_run():
    def harm(ranks: RunningRanks) -> None:
        raise RuntimeError("in the test's thread")

    with pytest.raises(RanksFailed, match="in the test's thread"):
        run_ranks(functions.add, 1, args=(1, 1), on_start=harm, deadline=30)


def test_unexpected_success_fails_the_run():
    with pytest.raises(RanksFailed, match="exit code 0, expected 10"):
        run_ranks(functions.add, 1, args=(1, 1), expect={0: 10}, deadline=30)
    run_ranks(functions.add, 1, args=(1, 1), expect={0: ANY}, deadline=30)


def test_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nprint(sys.argv[1], os.environ['KERAS_RING_SIZE'])\n"
    )
    result = run_ranks(script, 2, args=("word",), deadline=30)
    assert [rank.stdout for rank in result.ranks] == ["word 2\n"] * 2


def test_a_function_that_no_rank_can_import():
    with pytest.raises(ValueError, match="top of a test module"):
        run_ranks(lambda: None, 1)
