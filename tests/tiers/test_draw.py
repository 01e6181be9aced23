"""What is drawn within a budget."""

from hypothesis import given
from hypothesis import strategies as st

from tests.tiers.draw import UNKNOWN, draw
from tests.tiers.reach import Reach

names = st.text("abcdefgh", min_size=1, max_size=3)
tables = st.dictionaries(
    names, st.tuples(st.sampled_from(Reach), st.floats(0.1, 100.0))
)


def drawn(table, budget=100.0, seed=1, must=()):
    return draw(
        table,
        lambda name: table[name][0],
        {name: seconds for name, (_, seconds) in table.items()},
        budget,
        seed,
        must,
    )


@given(tables, st.floats(0.0, 500.0), st.integers(0, 99))
def test_each_test_is_somewhere_or_apart(table, budget, seed):
    found = drawn(table, budget, seed)
    reached = {name for name, (reach, _) in table.items() if reach}
    assert {*found.chosen, *found.left} == reached
    assert len(found.chosen) + len(found.left) == len(reached)
    assert abs(found.seconds - sum(table[n][1] for n in found.chosen)) < 1e-6
    # The first of each reach may be longer than what is left.
    longest = sum(sorted(s for _, s in table.values())[-2:])
    assert found.seconds <= budget + longest + 1e-6
    assert found == drawn(dict(reversed(table.items())), budget, seed)


@given(tables, st.integers(0, 99), st.data())
def test_what_must_run_runs(table, seed, data):
    must = data.draw(
        st.sets(st.sampled_from(sorted(table))) if table else st.just(set())
    )
    assert must <= {*drawn(table, 0.0, seed, must).chosen}


def test_what_is_touched_comes_first():
    table = {f"own{i}": (Reach.OWN, 10.0) for i in range(9)}
    table |= {f"below{i}": (Reach.BELOW, 10.0) for i in range(9)}
    found = drawn(table, 100.0)
    assert {f"own{i}" for i in range(9)} < {*found.chosen}
    assert len(found.chosen) == 10


def test_of_what_is_below_there_is_a_share():
    table = {f"below{i:03}": (Reach.BELOW, 1.0) for i in range(200)}
    assert len(drawn(table, 100.0).chosen) == 25


def test_other_seeds_draw_other_tests():
    table = {f"own{i}": (Reach.OWN, 10.0) for i in range(20)}
    runs = [{*drawn(table, 100.0, seed).chosen} for seed in range(30)]
    assert all(len(run) == 10 for run in runs)
    assert set().union(*runs) == set(table)


def test_what_nobody_has_measured():
    found = draw(["new"], lambda _: Reach.OWN, {}, 100.0, 1)
    assert found.chosen == ("new",)
    assert found.seconds == UNKNOWN
