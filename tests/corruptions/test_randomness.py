import numpy as np
import pytest
import scipy.stats
import torch

from vitlab.corruptions.randomness import Randomness


def test_numbers_depend_on_the_key_only():
    base = Randomness.of(3, "snow", 2, [5]).bits(64)
    for other in ((4, "snow", 2, [5]), (3, "fog", 2, [5]), (3, "snow", 1, [5]), (3, "snow", 2, [6])):
        assert (Randomness.of(*other).bits(64) == base).float().mean() < 0.1
    assert (Randomness.of(3, "snow", 2, [5]).bits(64, stream=1) == base).float().mean() < 0.1
    assert Randomness.of(3, "snow", 2, [9, 5, 1]).bits(8, 8)[1].flatten().equal(base[0])
    assert Randomness.of(3, "snow", 2, [5]).bits(100)[:, :64].equal(base)


def test_any_integer_is_a_seed_and_an_index():
    keys = [
        Randomness.of(seed, "fog", 1, [index]).bits(4) for seed, index in ((-1, 0), (2**70, 0), (0, -7), (0, 2**63))
    ]
    assert len({tuple(key.flatten().tolist()) for key in keys}) == 4


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda r: r.uniform(20000), scipy.stats.uniform()),
        (lambda r: r.uniform(20000, low=-2, high=3), scipy.stats.uniform(-2, 5)),
        (lambda r: r.normal(20000), scipy.stats.norm()),
        (lambda r: r.normal(20000, mean=2, deviation=0.5), scipy.stats.norm(2, 0.5)),
        (lambda r: r.halves(20000) / 2**16 + 0.5, scipy.stats.uniform()),
    ],
)
def test_numbers_have_their_distribution(draw, law):
    numbers = draw(Randomness.of(0, "test", 1, range(5))).numpy()
    assert scipy.stats.kstest(numbers.reshape(-1), law.cdf).pvalue > 0.01
    # Neighbours, halves of one hash, and images are unrelated: 0.01 is 3.2 standard errors.
    assert abs(np.corrcoef(numbers[:, :-1].reshape(-1), numbers[:, 1:].reshape(-1))[0, 1]) < 0.01
    assert np.abs(np.corrcoef(numbers) - np.eye(5)).max() < 0.03


def test_all_32_bits_are_unbiased():
    words = Randomness.of(0, "test", 1, range(4)).bits(20000).numpy().view(np.uint32)
    shares = [((words >> bit) & 1).mean() for bit in range(32)]
    assert np.abs(np.array(shares) - 0.5).max() < 0.008  # 4.5 standard errors


@pytest.mark.parametrize("most", [1, 3, 12, 60, 500])
@pytest.mark.parametrize("level", [0, 1, 40, 128, 255])
def test_poisson_is_scipys_distribution_truncated_at_the_top(most, level):
    draws = Randomness.of(1, "shot", 1, range(8)).poisson(torch.full((8, 20000), level / 255), most).numpy().reshape(-1)
    law = scipy.stats.poisson(level / 255 * most)
    chances = law.pmf(np.arange(most + 1))
    chances[most] = law.sf(most - 1)
    mean = chances @ np.arange(most + 1)
    variance = chances @ (np.arange(most + 1) - mean) ** 2
    assert abs(draws.mean() - mean) <= 4.5 * np.sqrt(variance / draws.size) + 1e-9
    assert draws.var() == pytest.approx(variance, rel=0.03, abs=1e-3)
    found = np.bincount(draws.astype(int), minlength=most + 1) / draws.size
    assert len(found) == most + 1
    assert np.abs(found.cumsum() - chances.cumsum()).max() < 0.006
