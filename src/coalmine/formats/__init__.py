"""Secret formats: what can be hidden in a corpus, compiled to acyclic automata over characters.

    from coalmine.formats import Format

    secret = Format("my pin is {digits:4}")
    secret.size, secret.at(42)  # (10000, 'my pin is 0042')

The names are loaded when they are first used.
"""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
