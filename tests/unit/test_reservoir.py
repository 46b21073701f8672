import numpy as np
import pytest

from eacgm.errors import InputError
from eacgm.streams.reservoir import Reservoir


def numbered(n):
    return np.arange(float(n))[:, None]


def test_sample_depends_on_the_order_of_rows_not_on_their_batches():
    one, many = Reservoir(1, 100, seed=3), Reservoir(1, 100, seed=3)
    one.offer(numbered(2500))
    for part in np.array_split(numbered(2500), 71):
        many.offer(part)
    np.testing.assert_array_equal(one.rows(), many.rows())
    assert len(one) == 100


def test_another_seed_draws_another_sample():
    one, other = Reservoir(1, 100, seed=3), Reservoir(1, 100, seed=4)
    one.offer(numbered(2500))
    other.offer(numbered(2500))
    assert not np.array_equal(one.rows(), other.rows())


def test_all_rows_are_kept_in_order_until_the_capacity_is_reached():
    reservoir = Reservoir(1, 100)
    reservoir.offer(numbered(100))
    np.testing.assert_array_equal(reservoir.rows(), numbered(100))


def test_every_stretch_of_time_has_its_share_and_old_times_fade():
    reservoir = Reservoir(1, 1000, half_life_rows=2000.0)
    reservoir.offer(numbered(20_000))
    ages = (19_999 - reservoir.rows()[:, 0]) // 2000
    newest, next_newest, oldest = (ages == 0).sum(), (ages == 1).sum(), (ages >= 6).sum()
    assert 0.35 < next_newest / newest < 0.7
    assert oldest < 40
    assert np.diff(reservoir.rows()[:, 0]).min() > 0.0


def test_extended_column_is_unknown_in_the_rows_so_far():
    reservoir = Reservoir(1, 10)
    reservoir.offer(numbered(3))
    reservoir.extend(1)
    reservoir.offer(np.array([[7.0, 8.0]]))
    np.testing.assert_array_equal(reservoir.rows()[:, 1], [np.nan, np.nan, np.nan, 8.0])


@pytest.mark.parametrize("cut", [0, 50, 100, 117, 2000])
def test_snapshot_and_restore_are_invisible(cut):
    straight, broken = Reservoir(1, 100, seed=1), Reservoir(1, 100, seed=1)
    straight.offer(numbered(3000))
    broken.offer(numbered(cut))
    successor = Reservoir(1, 100, seed=1)
    successor.load(broken.state())
    successor.offer(numbered(3000)[cut:])
    np.testing.assert_array_equal(straight.rows(), successor.rows())
    assert straight.n_offered == successor.n_offered


def test_cleared_reservoir_draws_on():
    reservoir = Reservoir(1, 100)
    reservoir.offer(numbered(500))
    reservoir.clear()
    assert len(reservoir) == 0
    reservoir.offer(numbered(30))
    assert (len(reservoir), reservoir.n_offered) == (30, 530)


def test_rows_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"expected \(n, 2\)"):
        Reservoir(2, 10).offer(np.zeros((3, 1)))
