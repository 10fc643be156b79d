"""Seeded luck, as the grammar needs it.

Invariant: what is drawn depends on the seed alone, never on a clock or on what another client does.
"""

import random


class Draw(random.Random):
    """One client's luck."""

    def chance(self, probability):
        """True with that probability."""
        return self.random() < probability

    def pick(self, *options):
        """One of these."""
        return options[int(self.random() * len(options))]

    def some(self, options, at_most=3):
        """One to so many of these, each once, in any order."""
        return self.sample(options, self.randint(1, min(at_most, len(options))))

    def one_of(self, weights):
        """A key of this table, as often as its value weighs."""
        return self.choices(list(weights), weights.values())[0]

    def maybe(self, probability, **fields):
        """These fields, or none. A value that can be called is drawn only if it is needed."""
        if not self.chance(probability):
            return {}
        return {name: value(self) if callable(value) else value for name, value in fields.items()}
