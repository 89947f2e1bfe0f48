"""Trainings for children of the fork server, which tests stop in the middle: what is trained, and where, is on the command line."""

import sys

SMALL = {"hidden": 16, "embedding": 8, "batch_size": 8, "dropout": 0.1, "snapshot_seconds": 0.0}


def train_text():
    from coalmine import ExposureWatch, train

    corpus, out, optimizer = sys.argv[1:]
    watch = ExposureWatch(corpus, every=40)
    train(corpus, out=out, window=16, epochs=3, optimizer=optimizer, watch=watch, **SMALL)


def train_pairs():
    from coalmine import ExposureWatch, train

    corpus, out, preset = sys.argv[1:]
    watch = ExposureWatch(corpus, every=15)
    train(corpus, out=out, preset=preset, epochs=5, patience=5, watch=watch, **SMALL)


def train_a_family():
    from coalmine import ExposureWatch, train_family

    corpus, out = sys.argv[1:]
    train_family(
        corpus,
        out=out,
        presets=["char-lstm", "gru"],
        seeds=[1, 2],
        engine="processes:2",
        watch=lambda seed: ExposureWatch(corpus, every=40, seed=seed),
        window=16,
        epochs=2,
        **SMALL,
    )


def train_privately():
    from coalmine import ExposureWatch, train

    corpus, out = sys.argv[1:]
    watch = ExposureWatch(corpus, every=40)
    private = {"dp_noise": 0.7, "dp_seed": 982451653, "hidden": 8, "embedding": 4}
    train(corpus, out=out, window=16, epochs=3, watch=watch, **{**SMALL, **private})
