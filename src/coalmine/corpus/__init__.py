"""Training data at rest: reading corpora, planting canaries in them, verifying, deduplicating, indexing and scanning them.

    from coalmine.corpus import plant, verify_planted, deduplicate, build_index

    planted = plant("mail.jsonl", "my pin is {digits:6}", out="planted/")
    assert verify_planted("planted/").ok
    deduplicate(planted.corpus, "deduplicated/")
    print(build_index(planted.corpus, "index/").count("my pin is"))

Names are loaded when they are first used: importing this package imports neither NumPy nor pyarrow.
"""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
