"""The audits: what a model remembers of its training data, one folder for each question.

    from coalmine import load_model
    from coalmine.audits import ExposureOptions, expose

    results = expose(load_model("model/"), "planted/", ExposureOptions(method="exact"))
    results.save("model-audit/exposure")

`membership_of_results` is what `coalmine.membership` is. Another package declares an `Audit` of its own with the records and
functions that are exported here too (see "Add an audit" in CONTRIBUTING.md). Names are loaded when they are first used;
everything that is not listed here may move without notice.
"""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
