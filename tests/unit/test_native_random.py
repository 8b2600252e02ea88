"""Random numbers of the kernels: Philox 4x32 with ten rounds, and Box and Muller's normal numbers."""

import math

import numpy as np
import pytest
from native import draw

pytestmark = pytest.mark.usefixtures("kernels")
WORD = 0xFFFFFFFF


def philox(counter, key):
    """Salmon et al. 2011, in plain Python."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [b >> 32 ^ x[1] ^ k0, b & WORD, a >> 32 ^ x[3] ^ k1, a & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return x


def bits(key, count):
    """The words that the kernels make numbers of: 16 counters side by side give 64."""
    blocks = [[philox((c, 0, 0, 0), (key & WORD, key >> 32)) for c in range(s, s + 16)] for s in range(0, count, 16)]
    return np.concatenate([np.array(block, np.uint64).T.reshape(-1) for block in blocks])[:count]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([WORD] * 4, [WORD] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_reference_gives_the_published_words(counter, key, words):
    assert [f"{word:08x}" for word in philox(counter, key)] == words.split()


KEYS = [0, 1, 2**32, 2**64 - 1, 0x299F31D0A4093822]


@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 300])
def test_uniform_numbers_are_the_bits_of_philox(count):
    for key, row in zip(KEYS, draw("uniform", KEYS, count)):
        wanted = [int(word >> np.uint64(8)) * 2.0**-24 for word in bits(key, count)]
        assert row.tolist() == wanted


@pytest.mark.parametrize("count", [1, 64, 300])
def test_normal_numbers_are_those_of_box_and_muller(count):
    for key, row in zip(KEYS, draw("normal", KEYS, count)):
        words = bits(key, -(-count // 64) * 64).reshape(-1, 2, 32).tolist()
        wanted = []
        for pairs in words:
            both = [box_and_muller(int(a), int(b)) for a, b in zip(*pairs)]
            wanted += [first for first, _ in both] + [second for _, second in both]
        np.testing.assert_allclose(row, wanted[:count], rtol=2e-6, atol=1e-6)


def box_and_muller(a, b):
    u = float(np.float32((a + 0.5) * 2.0**-32))  # in single precision before the logarithm
    angle = ((b >> 8) * 2.0**-24 + (b & 3)) * math.pi / 2
    radius = math.sqrt(-2 * math.log(u))
    return radius * math.cos(angle), radius * math.sin(angle)


COUNT = 100_000


def distance(sample, distribution):
    """Kolmogorov and Smirnov's."""
    ordered = np.sort(sample.astype(np.float64))
    steps = np.arange(len(ordered) + 1) / len(ordered)
    right = np.array([distribution(x) for x in ordered])
    return max(np.max(steps[1:] - right), np.max(right - steps[:-1]))


@pytest.mark.parametrize("key", [0, 12345])
def test_numbers_are_distributed_as_they_are_called(key):
    [uniform], [normal] = draw("uniform", [key], COUNT), draw("normal", [key], COUNT)
    assert uniform.min() >= 0 and uniform.max() < 1
    assert distance(uniform, lambda x: x) < 1.95 / math.sqrt(COUNT)  # by chance once in a thousand times
    assert distance(normal, lambda x: 0.5 * math.erfc(-x / math.sqrt(2))) < 1.95 / math.sqrt(COUNT)
    moments = [float((normal.astype(np.float64) ** k).mean()) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.1)
    pairs = np.corrcoef(normal[:-32], normal[32:])[0, 1], np.corrcoef(normal[:-1], normal[1:])[0, 1]
    assert max(map(abs, pairs)) < 0.015


def test_a_shorter_row_begins_a_longer_one_and_keys_differ():
    for kind in ("uniform", "normal"):
        long = draw(kind, KEYS, 200)
        assert np.array_equal(draw(kind, KEYS, 70)[:, :64], long[:, :64])
        assert len({row.tobytes() for row in long}) == len(KEYS)
