"""Models: loading one by its location, wrapping a live one, checking an adapter, and the protocols that audits ask for.

Names are loaded when they are first used: importing coalmine.models imports neither NumPy nor torch nor transformers.
"""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
