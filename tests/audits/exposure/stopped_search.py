"""In a child of the fork server: an audit in many small steps, which tests stop in the middle."""

import sys


def main():
    import coalmine.audits.exposure.ranked as methods
    from coalmine import CanarySet, Format, expose
    from coalmine.engines import ledger
    from coalmine.search.walks import enumeration
    from models.random_networks import random_model

    place, method = sys.argv[1:]
    ledger.SECONDS_BETWEEN_SAVES = 0.0
    enumeration.UNIT_MEMBERS = 100
    methods.KEEP_UP_TO = 10
    form = Format("{re:[0-4]{6}}")
    canaries = CanarySet.of(form, form.sample(4, 1, replace=False), references=20, seed=1)
    model = random_model(
        "transformer"
    )  # in float32, where a text that is read again is rounded in another way
    expose(model, canaries, method=method, resume=place, batch=32).save(place)
