"""Users with a vocabulary of their own each, and small models that can be trained on them in a second."""

from coalmine.audits import User, UserText
from coalmine.randomness import arrays
from coalmine.training.trainer import train_documents

COMMON = [f"w{number}" for number in range(30)]
SMALL = {
    "hidden": 16,
    "embedding": 16,
    "batch_size": 4,
    "window": 12,
    "epochs": 30,
    "vocabulary": 200,
    "learning_rate": 2e-2,
    "dropout": 0.0,
}


def small_users(number, *, texts=6, pairs=False, seed=0):
    """Each prefers pairs of words that nobody else prefers, so that a model remembers whom it was trained on."""
    found = []
    for place in range(number):
        drawn = arrays(seed, "test", "user", place)
        habits = drawn.permutation(COMMON)
        written = []
        for _ in range(texts):
            starts = drawn.integers(0, len(habits) - 1, size=3)
            text = " ".join(f"{habits[start]} {habits[start + 1]}" for start in starts)
            written.append(UserText(text, f"say {habits[0]}" if pairs else None))
        found.append(User(f"user {place}", tuple(written)))
    return found


def divided(texts, number, seed=0):
    """Users of random parts of texts that have none, all of one size, by which nobody is told from others."""
    order = arrays(seed, "test", "divided").permutation(len(texts))[: len(texts) // number * number]
    return [
        User(f"user {place}", tuple(UserText(texts[one]) for one in order[place::number]))
        for place in range(number)
    ]


def files_below(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def saved_model(documents, directory):
    """A training function of a user's own, named as python:module:function."""
    texts = [document.text for document in documents]
    train_documents(texts, out=directory, preset="provenance-words", **{**SMALL, "epochs": 3})
