"""Which document is asked for, as YCSB chooses: by a Zipfian law of exponent 0.99 whose popular ones are scattered over the table.

Source: J. Gray and others, "Quickly generating billion-record synthetic databases" (SIGMOD 1994), section 3.2; the scattering is
that of Cooper and others, "Benchmarking cloud serving systems with YCSB" (SoCC 2010): the rank's FNV-1a hash.
"""

EXPONENT = 0.99


def fnv(number):
    """The 64-bit FNV-1a hash of a number's eight bytes."""
    value = 0xCBF29CE484222325
    for _ in range(8):
        value = ((value ^ (number & 0xFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        number >>= 8
    return value


class Zipfian:
    """Numbers below `count`, drawn from `random`."""

    def __init__(self, count, random):
        self._count, self._random = count, random
        self._zeta = sum(1 / rank**EXPONENT for rank in range(1, count + 1))
        self._alpha = 1 / (1 - EXPONENT)
        of_two = 1 + 0.5**EXPONENT
        self._eta = (1 - (2 / count) ** (1 - EXPONENT)) / (1 - of_two / self._zeta)

    def rank(self):
        """How popular the next one is: 0 the most."""
        drawn = self._random.random()
        scaled = drawn * self._zeta
        if scaled < 1:
            return 0
        if scaled < 1 + 0.5**EXPONENT:
            return 1
        return min(self._count - 1, int(self._count * (self._eta * drawn - self._eta + 1) ** self._alpha))

    def next(self):
        """The next one's number."""
        return fnv(self.rank()) % self._count
