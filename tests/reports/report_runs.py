"""Runs for the tests of reports: real audits of a scripted model whose memory is known, and records of the other stages."""

import json
import math

import msgspec

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose, membership
from coalmine.audits import EXPOSURES, Run, verify_extraction
from coalmine.audits.exposure.results import write_scores
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.recitation.records import Example, RecitationTrend, share_estimate
from coalmine.evidence.run import Located
from coalmine.records.documents import write_sealed
from coalmine.records.watching import Moment
from coalmine.statistics import exact_exposure, log_linear_trend, reference_exposures
from coalmine.storage.files import sha256_of_file
from coalmine.training.finetuning.base_checkpoint import Base
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.finetuning.record import FinetuningRecord
from coalmine.training.options import TrainingOptions
from coalmine.training.record import EpochRecord, TrainingRecord
from reports import verdict_parts as parts
from resealing import resealed

FORM = Format("my pin is {digits:4}")
CHARACTERS = "my pin is0123456789"
# Unequal, so that members have different probabilities.
FREQUENCIES = {str(digit): 3 + digit for digit in range(10)}


def canary_set(repetitions=(1, 16), each=6, withheld=6, references=200):
    texts = FORM.sample(each * len(repetitions) + withheld + references, seed=3, replace=False)
    listed = [
        Canary(
            canary_id=f"f0-x{times}-{number}",
            format_id="f0",
            text=texts.pop(),
            repetitions=times,
            planted=True,
        )
        for times in repetitions
        for number in range(each)
    ] + [
        Canary(canary_id=f"f0-w-{number}", format_id="f0", text=texts.pop(), repetitions=1, planted=False)
        for number in range(withheld)
    ]
    return CanarySet(listed, {"f0": FORM}, references={"f0": texts})


def scripted(remembered=(), share=0.1, name="scripted"):
    memory = {canary.text: share for canary in remembered}
    return ScriptedModel(CHARACTERS, memory=memory, frequencies=FREQUENCIES, name=name)


def audited_run(directory, *, remembered=2, name="scripted", weights=None, **claims):
    """Canaries, exposures, extraction and membership of a model that remembers the last few canaries that were planted."""
    canaries = canary_set()
    planted = [canary for canary in canaries if canary.planted]
    model = scripted(planted[len(planted) - remembered :], name=name)
    canaries.save(directory / "canaries.json")
    expose(model, canaries).save(directory / "exposure")
    expose(model, canaries, method="references").save(directory / "references")
    save_verified(directory / "extraction", model, canaries)
    found = membership(directory / "references", **claims)
    found.save(directory / "membership")
    if weights is not None:
        name_weights(directory, weights)
    return canaries


def name_weights(directory, name):
    """Say which model the results are about: scripted models describe themselves alike."""
    for path in directory.rglob("*.json"):
        if path.name != "canaries.json" and "model" in json.loads(path.read_text()):
            with resealed(path) as document:
                document["model"]["weights"] = name


def save_verified(directory, model, canaries, **options):
    results, extractions = verify_extraction(model, canaries, **options)
    save_verification(
        directory, results, extractions, manifest_sha256=canaries.sha256, model=model.describe()
    )


def save_training(directory, data_sha256="0" * 64, watched=(), parameters=5_000):
    record = TrainingRecord(
        options=TrainingOptions(),
        data_sha256=data_sha256,
        **{
            field: sha256_of_file(directory / name) if (directory / name).is_file() else digit * 64
            for field, name, digit in (
                ("weights_sha256", "model.safetensors", "1"),
                ("config_sha256", "config.json", "2"),
            )
        },
        documents=100,
        tokens=10_000,
        parameters=parameters,
        epochs=[
            EpochRecord(epoch=1, steps=50, training_loss_bits=3.0, validation_loss_bits=3.1),
            EpochRecord(epoch=2, steps=50, training_loss_bits=2.0, validation_loss_bits=2.5),
        ],
        best_epoch=2,
        stopped_early=False,
        watch={"kind": "exposure", "method": "references"} if watched else None,
        watched=list(watched),
    )
    write_sealed(directory / "training.json", record)
    return record


def save_finetuning(directory, data_sha256="0" * 64):
    """The record of a fine-tuning whose weights are those of `save_training`."""
    record = FinetuningRecord(
        options=FinetuningOptions(epochs=1),
        base=Base(name="base", weights_sha256=["3" * 64], settings_sha256={"tokenizer.json": "4" * 64}),
        data_sha256=data_sha256,
        weights_sha256="1" * 64,
        config_sha256="2" * 64,
        documents=100,
        tokens=10_000,
        windows=100,
        window=256,
        context="BOS token '<s>'",
        parameters=5_000,
        trained_parameters=500,
        epochs=[EpochRecord(epoch=1, steps=50, training_loss_bits=3.0, validation_loss_bits=3.1)],
    )
    write_sealed(directory / "finetuning.json", record)
    return record


def watch_records(canaries, steps=(25, 50, 75, 100)):
    """A watch in which canaries that were planted often stand out from the third look on."""
    records = []
    for place, step in enumerate(steps):
        seen = []
        for canary in canaries:
            high = canary.times_trained_on > 1 and place >= 2
            seen.append(
                {
                    "canary_id": canary.canary_id,
                    "format_id": canary.format_id,
                    "repetitions": canary.times_trained_on,
                    "log_perplexity_bits": 20.0,
                    "status": "lower_bound" if high else "measured",
                    "exposure": None if high else 1.0,
                    "low": 12.0 if high else 0.7,
                    "high": None if high else 1.4,
                }
            )
        records.append(Moment(step=step, epoch=1 + place // 2, seen=seen))
    return records


def recitation(hits=(5, 20, 35, 50), of=100, baseline_hits=None, *, name="asked"):
    """A recitation at one context, with as many sequences for each of several numbers of copies."""

    def groups(model, counts):
        yield parts.group(share_estimate(sum(counts), of * len(counts), "were recited", 0.95), model=model)
        for place, count in enumerate(counts):
            one = parts.group(share_estimate(count, of, "were recited", 0.95), model=model, bucket=place)
            least = 4**place
            yield msgspec.structs.replace(one, copies=(least, 4 * least - 1), mean_copies=2.0 * least)

    found = [*groups(name, hits), *(() if baseline_hits is None else groups("other", baseline_hits))]
    trend = log_linear_trend([2.0 * 4**place for place in range(len(hits))], list(hits), [of] * len(hits))
    whole = parts.recitations(
        *found,
        names=(name,),
        baseline=baseline_hits is not None,
        trends=[RecitationTrend(by="repetitions", model=name, context=50, trend=trend)],
        hidden_share=None,
    )
    example = Example(
        document=0, offset=0, copies=9, context=50, prompt="once upon a time", suffix="there was a secret",
        recited_by=(name,),
    )  # fmt: skip
    return msgspec.structs.replace(
        whole, sequences=of * len(hits), questions=of * len(hits), examples=(example,)
    )


def exposure_result(canary_id, estimate, *, times=1, bits=30.0, rank=None, most=20.0):
    """A result with this estimate; where it says what the rank is, and in the whole space how many there are, these are its own."""
    if estimate.method in {"exact", "references"} and estimate.status != "not_measured":
        rank = 1 if estimate.value is None else round(estimate.n * 2.0**-estimate.value)
        most = math.log2(estimate.n) if estimate.method == "exact" else most
    found = parts.result(canary_id, estimate, times=times, planted=times > 0, most=most)
    return msgspec.structs.replace(found, rank=rank, known_log_perplexity_bits=bits)


def exposure_document(results, *, size=2**20, method="exact", **further):
    model = {"adapter": "scripted", "weights": "m"}
    return parts.document(results, size=size, method=method, model=model, **further)


def save_exposures(directory, document, *candidates):
    """Write exposures as `expose` does, with the scores of these candidates beside them if there are any."""
    if candidates:
        digest = write_scores(directory / "scores.parquet", candidates)
        document = msgspec.structs.replace(document, scores_sha256=digest)
    write_sealed(directory / "exposure.json", document)


def run_with(tmp_path, document=None, **others):
    exposures = () if document is None else (Located(tmp_path / "exposure.json", document),)
    others = {parts.KINDS[name]: these for name, these in others.items()}
    return Run(paths=(tmp_path,), name="run", documents={EXPOSURES: exposures, **others})


def guessed_document(generator, *, times=(1, 4), each=10, withheld=10, references=None, size=2**20):
    """The exposures of canaries that a model without memory would give: ranks are uniform."""
    groups = [*(one for one in times for _ in range(each)), *([0] * withheld)]
    if references is None:
        ranks = generator.integers(1, size + 1, len(groups))
        estimates = [exact_exposure(int(rank), size) for rank in ranks]
    else:
        estimates = reference_exposures(generator.normal(size=len(groups)), generator.normal(size=references))
    results = [
        exposure_result(f"c{number}", estimate, times=one)
        for number, (one, estimate) in enumerate(zip(groups, estimates, strict=True))
    ]
    return exposure_document(results, size=size, method="exact" if references is None else "references")
