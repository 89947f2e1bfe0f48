"""What reports learn from exposure that was watched during a training: losses and exposures by step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from statistics import median

from coalmine.audits.exposure.display import names_of_formats
from coalmine.audits.watching.records import WATCHES, WatchedTraining
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, rounded, thinned
from coalmine.evidence.measures import Audit
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.records.watching import Moment

MOST_MOMENTS = 300


def watched_training(run: Run) -> WatchedTraining | None:
    """Exposure during training: from a callback in another trainer, or from `coalmine train --watch`."""
    callback, record = run.first(WATCHES), run.training
    if callback is not None or record is None or record.watch is None or not record.watched:
        return callback
    return WatchedTraining(watch=record.watch, watched=record.watched)


def training_figures(run: Run) -> Iterator[Chart | None]:
    """Losses by step if there is a record of the training, and exposures by step if they were watched.

    After Figures 7 and 8 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
    """
    record, watched = run.training, watched_training(run)
    if record is not None and record.epochs:
        ends = accumulate(epoch.steps for epoch in record.epochs)
        columns = ("loss on", "epoch", "batches", "bits per token")
        yield Chart(
            id="losses",
            title="Losses during training",
            caption=f"Losses at the end of each epoch; the weights of epoch {record.best_epoch} were kept. The losses have no intervals: "
            "those of single documents are not kept.",
            rows=[
                dict(zip(columns, (name, epoch.epoch, step, rounded(loss)), strict=True))
                for epoch, step in zip(record.epochs, ends, strict=True)
                for name in ("training", "validation")
                if (loss := getattr(epoch, f"{name}_loss_bits")) is not None
            ],
            columns=columns,
            x=Axis(column="batches", grid=False),
            y=Axis(column="bits per token", title="loss (bits per token)"),
            marks=(Marks(kind="line", shows=columns),),
            color="loss on",
            height=220,
        )
    if watched is None or not (rows := _medians(run, [one for one in watched.watched if one.seen])):
        return
    yield Chart(
        id="exposure-during-training",
        title="Exposure during training",
        caption="The median exposure of canaries by how often they occur in the data, with their range as a band; measured by "
        f"{watched.watch.get('method')}. An exposure with only a lower bound counts as that bound; looks during training are coarse.",
        rows=rows,
        columns=("format", "batches", "epoch", "times", "median (bits)", "least", "most", "canaries"),
        x=Axis(column="batches", grid=False),
        y=Axis(column="median (bits)", title="exposure (bits)"),
        marks=(
            Marks(kind="area", y="least", y_to="most"),
            Marks(kind="line", shows=("trained on", "batches", "median (bits)", "least", "most")),
        ),
        color="trained on",
        colors=copies_colors(int(row["times"]) for row in rows),
        legend="trained on (per epoch)",
        panel="format",
        height=240,
    )


def _medians(run: Run, looks: list[Moment]) -> Rows:
    """The median of each format and number of copies at each look; formats are never mixed."""
    names, rows = names_of_formats(run), Rows()
    for place in thinned(len(looks), MOST_MOMENTS):
        moment = looks[place]
        groups: dict[tuple[str, int], list[float]] = {}
        for one in moment.canaries:
            bits = one.low if one.exposure is None else one.exposure
            if one.status != "not_measured" and bits is not None:
                groups.setdefault((str(one.format_id), one.repetitions), []).append(bits)
        rows += [
            {
                "format": names[format_id],
                "batches": moment.step,
                "epoch": rounded(moment.epoch, 2),
                "times": times,
                "trained on": times_in_words(times),
                "median (bits)": rounded(median(known)),
                "least": rounded(min(known)),
                "most": rounded(max(known)),
                "canaries": len(known),
            }
            for (format_id, times), known in sorted(groups.items())
        ]
    return rows


WATCHING = Audit(
    name="watching",
    command="coalmine train --watch",
    documents=(WATCHES,),
    is_tested=lambda run: watched_training(run) is not None,
    figures=training_figures,
)
