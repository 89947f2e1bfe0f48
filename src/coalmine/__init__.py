"""coalmine tells you what a language model remembers of its training data.

    from coalmine import Format, plant, train, load_model, expose

    secret = Format("the random number is {digits:9}")
    planted = plant("corpus.txt", [secret], repeat=[1, 4, 16], seed=0, out="planted/")
    train("planted/", out="model/")
    for result in expose(load_model("model/"), planted.canaries):
        print(result.canary_id, result.repetitions, result.exposure, result.interval, result.method)

The names are loaded when they are first used: importing coalmine imports neither torch nor NumPy.
"""

from coalmine.lazy import lazy

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
