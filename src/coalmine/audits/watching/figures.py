"""The figures of a training: losses and exposures by step.

After Figures 7 and 8 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import median

from coalmine.audits.exposure.format_panels import formats_of_canaries, names_of_formats
from coalmine.audits.watching.findings import watched_training
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words

MOST_MOMENTS = 300


def training_figures(run: Run) -> tuple[Figure | None, Figure | None]:
    """Losses by step if there is a record of the training, and exposures by step if they were watched."""
    return _losses(run), _exposures(run)


def _losses(run: Run) -> Figure | None:
    record = run.training
    if record is None or not record.epochs:
        return None
    ends = list(accumulate(epoch.steps for epoch in record.epochs))
    points: Points = []
    for epoch, step in zip(record.epochs, ends, strict=True):
        losses = {"training": epoch.training_loss_bits, "validation": epoch.validation_loss_bits}
        points += [
            {"step": step, "epoch": epoch.epoch, "loss": draw.rounded(loss), "data": name}
            for name, loss in losses.items()
            if loss is not None
        ]
    description = (
        f"Training and validation loss in bits per token at the end of each of {len(record.epochs)} epochs."
    )
    lines = draw.layer(
        points,
        {"type": "line", "point": True},
        x=draw.axis("step", "batches", axis={"grid": False}),
        y=draw.axis("loss", "loss (bits per token)", scale={"zero": False}),
        color=draw.colors_of(["training", "validation"], None, "data"),
        tooltip=draw.tooltips(("data", "loss on"), "epoch", ("step", "batches"), ("loss", "bits per token")),
    )
    return Figure(
        figure_id="losses",
        title="Losses during training",
        caption=f"Losses at the end of each epoch; the weights of epoch {record.best_epoch} were kept. The losses have no intervals: "
        "those of single documents are not kept.",
        panels=(Panel(specs={"": draw.spec([lines], description=description, height=220)}),),
        columns=("epoch", "batches", "training (bits per token)", "validation (bits per token)"),
        rows=tuple(
            (one.epoch, step, draw.rounded(one.training_loss_bits), draw.rounded(one.validation_loss_bits))
            for one, step in zip(record.epochs, ends, strict=True)
        ),
    )


def _exposures(run: Run) -> Figure | None:
    watched = watched_training(run)
    if watched is None:
        return None
    points = _medians(run)
    if not points:
        return None
    colors = draw.copies_colors(int(point["times"]) for point in points)
    method = watched.watch.get("method", "")
    return Figure(
        figure_id="exposure-during-training",
        title="Exposure during training",
        caption="The median exposure of canaries by how often they occur in the data, with their range as a band; measured by "
        f"{method!s}. An exposure with only a lower bound counts as that bound.",
        panels=tuple(
            Panel(title=name, specs={"": _drawing(own, colors)})
            for name, own in draw.by_format(points).items()
        ),
        columns=("format", "batches", "epoch", "trained on", "median (bits)", "least", "most", "canaries"),
        rows=draw.rows_of(points, "format", "step", "epoch", "times", "median", "least", "most", "canaries"),
    )


def _medians(run: Run) -> Points:
    """The median of each format and number of copies at each look; formats are never mixed."""
    names, formats = names_of_formats(run), formats_of_canaries(run)
    watched = watched_training(run)
    looks = [] if watched is None else [moment for moment in watched.watched if moment.seen]
    looks = [looks[place] for place in draw.thinned(len(looks), MOST_MOMENTS)]
    points = []
    for moment in looks:
        groups: dict[tuple[str, int], list[float]] = {}
        for entry in moment.seen:
            canary = str(entry["canary_id"])
            # An id begins with that of its format, for canaries that no result describes.
            format_id = entry.get("format_id") or formats.get(canary) or canary.partition("-")[0]
            if entry["status"] != "not_measured":
                bits = float(entry["low"] if entry["exposure"] is None else entry["exposure"])
                groups.setdefault((str(format_id), int(entry["repetitions"])), []).append(bits)
        points += [
            {
                "format": names[format_id],
                "step": moment.step,
                "epoch": draw.rounded(moment.epoch, 2),
                "times": times,
                "trained on": times_in_words(times),
                "median": draw.rounded(median(known)),
                "least": draw.rounded(min(known)),
                "most": draw.rounded(max(known)),
                "canaries": len(known),
            }
            for (format_id, times), known in sorted(groups.items())
        ]
    return points


def _drawing(points: Points, colors: dict[int, str]) -> Spec:
    x = draw.axis("step", "batches", axis={"grid": False})
    color = draw.copies_channel(
        (int(point["times"]) for point in points), colors, "trained on (per epoch)", "trained on"
    )
    least, middle = draw.axis("least", "exposure (bits)"), draw.axis("median", "exposure (bits)")
    shown = draw.tooltips("trained on", ("step", "batches"), ("median", "median (bits)"), "least", "most")
    lines = {"type": "line", "point": {"size": 30}}
    layers = [
        draw.layer(
            points, {"type": "area", "opacity": 0.18, "aria": False}, x=x, y=least, y2="most", color=color
        ),
        draw.layer(points, lines, x=x, y=middle, color=color, tooltip=shown),
    ]
    return draw.spec(layers, description="Exposure in bits by the number of batches trained.", height=240)
