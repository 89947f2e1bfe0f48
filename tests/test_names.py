"""Every option has one name, that of the parameter or of the field of a record that it fills in Python; and every class has its own."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
import typer

import coalmine
from coalmine import audits, corpus, integrations, models
from coalmine.audits.survival.options import SftSettings
from coalmine.cli.main import app
from coalmine.cli.taking import bytes_in
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.options import TrainingOptions
from coalmine.training.private.options import PREFIX, PrivateOptions

# What the commands fill: functions by their parameters, and records of options by their fields.
FILLED = {
    "plant": (coalmine.plant, corpus.PlantOptions),
    "import": (corpus.import_canaries, corpus.ImportOptions),
    "train": (coalmine.train, TrainingOptions, PrivateOptions),
    "quantize": (coalmine.quantize, coalmine.QuantizeOptions),
    "finetune": (coalmine.finetune, FinetuningOptions, PrivateOptions),
    "unlearn": (coalmine.unlearn, coalmine.UnlearnOptions),
    "survive": (integrations.check_survival, SftSettings),
    "expose": (coalmine.expose, audits.ExposureOptions, models.LoadOptions),
    "extract": (coalmine.extract, audits.ExtractionOptions, models.LoadOptions),
    "membership": (
        audits.membership_of_results,
        audits.membership_of_scores,
        audits.membership_of_file,
        audits.MembershipOptions,
    ),
    "index": (corpus.build_index, corpus.IndexOptions),
    "count": (corpus.CorpusIndex.open, corpus.CorpusIndex.counts, corpus.repeated_sequences),
    "dedup": (corpus.deduplicate, corpus.DedupOptions),
    "redact": (corpus.redact, corpus.RedactOptions),
    "crosscheck": (audits.crosscheck, audits.CrosscheckOptions),
    "defend": (coalmine.defend, audits.DefenseOptions, corpus.PlantOptions),
    "scan": (coalmine.scan, corpus.canaries_of_scan, corpus.canaries_of_records, corpus.NaturalOptions),
    "recite": (coalmine.recite, audits.RecitationOptions, models.LoadOptions),
    "provenance fit": (coalmine.fit_provenance, audits.read_users, audits.FitOptions),
    "provenance audit": (
        coalmine.audit_provenance,
        audits.AuditedUsers,
        audits.ProvenanceOptions,
        models.LoadOptions,
    ),
    "provenance both": (
        coalmine.audit_provenance,
        audits.AuditedUsers,
        audits.ProvenanceOptions,
        models.LoadOptions,
        coalmine.fit_provenance,
        audits.FitOptions,
    ),
    "audit": (coalmine.audit, coalmine.ReviewOptions, models.LoadOptions),
    "report": (coalmine.read_runs,),
    "check": (coalmine.check,),
    "policy init": (),
    "compare": (audits.compare_runs, audits.ComparisonOptions),
    "verify": (coalmine.verify_run,),
    "serve": (coalmine.serve, models.LoadOptions),
    "demo": (),
}
# Options of several commands that are no parameter of Python's, and why.
EVERYWHERE = {
    "json": "prints what Python returns",
    "quiet": "prints less of it",
    "seed": "an argument of what Python calls, or one of its options",
    "out": "Python returns results, and their `save` takes the directory",
    "reveal": "prints texts that the results have anyway",
    "overwrite": "Python's `save` replaces what is there",
    "words": "the `words` of a `Format`",
    "source": "Python gives a model its source with `model.given(source)`",
    "text_field": "the field `text` of `Fields`",
    "user_field": "the field `user` of `Fields`",
    "source_field": "the field `source` of `Fields`",
    "target_field": "the field `target` of `Fields`",
    "date_field": "the field `date` of `Fields`",
    "rows": "the field `rows` of `Fields`",
}
EXCEPTIONS = {
    "plant": {"verify": "calls `verify_planted` instead"},
    "train": {
        "watch_every": "the option `every` of `ExposureWatch`, which is given to `watch`",
        "watch_method": "the option `method` of `ExposureWatch`, which is given to `watch`",
    },
    "extract": {
        "verify": "calls `verify_extraction` instead",
        "replay": "calls `verify_certificate` instead",
    },
    "count": {
        "texts": "the queries of `CorpusIndex.counts`",
        "texts_file": "a file with such texts; Python has them in a list",
        "places": "calls `CorpusIndex.locate` too",
        "longest": "calls `CorpusIndex.longest_match` too",
        "repeated": "calls `repeated_sequences` instead, with this length",
    },
    "scan": {"format": "one of the `formats`"},
    "defend": {"defense": "one of the `defenses`"},
    "dedup": {"no_exact": "makes `exact` None", "no_near": "makes `near` None"},
    "redact": {
        "format": "one of `formats`",
        "key_file": "names where the `key` is, which must not be on a command line",
    },
    "recite": {
        "models_and_index": "`models` and `index`, in the one list that a command line has",
        "family": "says that a list of several models is meant",
    },
    "provenance fit": {"artificial_users": "calls `artificial_users` with this number of them"},
    "provenance audit": {
        "index": "the directory of the index in `indexed`, which says whose texts it is of",
        "thread_field": "the user field of `Fields`, where all texts are one person's",
    },
    "provenance both": {
        "artificial_users": "calls `artificial_users` with this number of them",
        "index": "the directory of the index in `indexed`, which says whose texts it is of",
        "thread_field": "the user field of `Fields`, where all texts are one person's",
    },
    "report": {"runs": "the paths of `read_runs`", "format": "Python has no function for a whole report"},
    "check": {"junit": "writes the result that Python returns"},
    "policy init": {"path": "writes a template"},
    "survive": {
        "model": "a tokenizer to make a trainer with; Python is given the trainer itself",
        "settings": "a file of settings for that trainer",
    },
    "compare": {"figure": "draws the result that Python returns"},
    "serve": {"key_variable": "names where the `key` is, which must not be on a command line"},
}


def commands(group, prefix=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield prefix + name, command


COMMANDS = dict(commands(typer.main.get_command(app)))


def names_of(filled):
    if filled is PrivateOptions:  # `train` and others take its fields with this before their names
        return {PREFIX + name for name in filled.__struct_fields__}
    if isinstance(filled, type) and issubclass(filled, msgspec.Struct):
        return set(filled.__struct_fields__)
    return set(inspect.signature(filled).parameters)


def test_every_command_is_compared():
    assert set(FILLED) == set(COMMANDS)


@pytest.mark.parametrize("command", FILLED)
def test_options_have_the_names_of_python(command):
    known = {name for filled in FILLED[command] for name in names_of(filled)}
    exceptions = EVERYWHERE | EXCEPTIONS.get(command, {})
    offered = [one.name for one in COMMANDS[command].params]
    if "engine" in offered:
        known |= names_of(EngineOptions)
    assert [name for name in offered if name not in known and name not in exceptions] == []
    # A reason that nothing needs any longer is removed.
    assert [name for name in EXCEPTIONS.get(command, ()) if name in known or name not in offered] == []


@pytest.mark.parametrize("command", FILLED)
def test_options_are_spelled_as_their_names(command):
    for one in COMMANDS[command].params:
        if one.param_type_name == "option" and one.name != "help":
            assert "--" + one.name.replace("_", "-") in one.opts


def test_memory_is_in_bytes_in_python_and_has_its_unit_on_the_command_line():
    for command in ("expose", "extract", "index", "dedup"):
        [memory] = [one for one in COMMANDS[command].params if one.name == "memory"]
        [record] = [one for one in FILLED[command] if isinstance(one, type) and "memory" in names_of(one)]
        assert bytes_in(memory.default, "--memory") == record().memory


@pytest.mark.parametrize("size", ["500", "2 giga", "-1MB", "MB", "1e3MB"])
def test_a_size_without_its_unit_is_refused(size):
    with pytest.raises(InputError, match="takes a size with its unit, such as 500MB or 2GB"):
        bytes_in(size, "--memory")


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in Path(coalmine.__file__).parent.rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(one, ast.ClassDef):
                places[one.name].append(path.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
