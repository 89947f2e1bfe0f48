"""Can members be told from non-members as well as in the provenance paper, by which statistic, and with how few queries?

    python experiments/provenance_paper.py words --data TWEETS.jsonl.gz --treebank PTB.txt --work DIR
    python experiments/provenance_paper.py public --data TWEETS.jsonl.gz --work DIR
    python experiments/provenance_paper.py mismatched --data TWEETS.jsonl.gz --work DIR
    python experiments/provenance_paper.py users --data TWEETS.jsonl.gz --work DIR
    python experiments/provenance_paper.py dialogs --data DIALOGS.jsonl.gz --work DIR
    python experiments/provenance_paper.py translation --data EN-FR.tsv.gz --work DIR
    python experiments/provenance_paper.py null --data TWEETS.jsonl.gz --work DIR

trains a target and its shadow models (those in DIR already are not trained again), and measures the tables and figures of Auditing Data
Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513) on them, with all statistics side by side. Rows go to
experiments/results/provenance-*.csv, and settings and other numbers to provenance-*.json. `mismatched`, `users` and `null` use the
target of `words`, so that `words` comes first. Each takes up to half an hour on two cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import provenance_parts as parts
from provenance_data import Split, dialogs, posts, translations, treebank
from provenance_measures import RESULTS, Audited, Row, write_rows
from provenance_null import NullRow, blind_rows, mixed_rows, unseen_rows

from coalmine import load_model
from coalmine.audits.provenance.fit import Fit, fit_provenance
from coalmine.audits.provenance.users import User
from coalmine.engines.engine import Engine, open_engine
from coalmine.models.protocols import Model
from coalmine.models.reference.tokens import WordTokenizer
from coalmine.storage.files import PUBLIC, write_json
from coalmine.training.trainer import train_documents

SEED = 0
# Rows, and what else was found.
Measured = tuple[list[Any], Any]


class Task(NamedTuple):
    """The sizes of an experiment; the paper's are 300 members, 300 non-members, 600 reference users, 30 epochs and 10 shadow models."""

    preset: str
    read: Callable[..., Split]
    users: tuple[int, int, int]
    texts: int
    words: int
    epochs: int
    shadows: int
    # Whose words are the vocabulary: the members', as in the paper, or those of users whom the target is not trained on.
    vocabulary_of: Literal["members", "reference"] = "members"

    def split(self, path: Path) -> Split:
        """The users of a file, divided."""
        return self.read(path, texts=self.texts, words=self.words, users=self.users, seed=SEED)


TASKS = {
    "words": Task("provenance-words", posts, (149, 149, 300), texts=36, words=15, epochs=15, shadows=2),
    "public": Task(
        "provenance-words",
        posts,
        (75, 75, 150),
        texts=36,
        words=15,
        epochs=15,
        shadows=2,
        vocabulary_of="reference",
    ),
    "dialogs": Task("provenance-dialog", dialogs, (103, 103, 206), texts=30, words=15, epochs=20, shadows=2),
    "translation": Task(
        "provenance-translation", translations, (100, 100, 200), texts=36, words=15, epochs=15, shadows=2
    ),
}
# Shadow models of another kind: two of the ten sizes of appendix B.2.
MISMATCHED_SIZES = [64, 96]
# Artificial users of another domain, for shadow models: half as many as of the target's own.
NEWSPAPER_USERS = 150
# Figure 2, as far as there are users; each with twice as many reference users.
NUMBERS_OF_USERS = (25, 50)
FEWER_SHADOWS = 2
# Audits that are simulated from scores cost nearly nothing; those of the blind baseline do.
MORE = 10


class Training(NamedTuple):
    """A model to be trained on the texts of some users."""

    users: Sequence[User]
    out: Path
    preset: str
    options: dict[str, Any]


def trained(training: Training) -> float:
    """Train a model, if it is not there; the seconds that it took."""
    began = time.perf_counter()
    texts = [text for user in training.users for text in user.texts]
    sources = [text.source or "" for text in texts] if texts[0].source is not None else None
    by_user = training.options.get("dp_unit") == "user"
    train_documents(
        [text.text for text in texts],
        sources=sources,
        users=[user.name for user in training.users for _ in user.texts] if by_user else None,
        out=training.out,
        preset=training.preset,
        **training.options,
    )
    return time.perf_counter() - began


class Experiment:
    """One command: what it measures is written as it comes, and what was measured before is not measured again."""

    def __init__(self, name: str, work: Path, settings: Any) -> None:
        self.name, self.work = name, work
        self.facts: dict[str, Any] = {"settings": settings, "seed": SEED, "seconds": {}}
        self.rows: list[Any] = []

    def kept(self, name: str) -> Path:
        """Where a part is kept once it was measured."""
        return self.work / f"{self.name}-{name}.json"

    def part(self, name: str, measure: Callable[[], Measured], kind: type = Row) -> None:
        """Measure a part, or read it back; its rows and its other facts are written."""
        kept = self.kept(name)
        if kept.is_file():
            seconds, found, facts = msgspec.json.decode(kept.read_bytes(), type=tuple[float, list[Any], Any])
            rows: list[Any] = [msgspec.convert(row, kind) for row in found]
        else:
            began = time.perf_counter()
            rows, facts = measure()
            seconds = time.perf_counter() - began
            write_json(kept, [seconds, rows, facts])
        print(f"{self.name} {name}: {seconds:.0f} s", flush=True)
        for row in rows:
            shown = f"AUC {row.auc:.3f}" if kind is Row else f"{row.quantity} {row.mean:.3f}"
            print(f"  {row.setting}, {row.statistic}: {shown}", flush=True)
        self.facts["seconds"][name] = round(seconds, 1)
        if facts is not None:
            self.facts[name] = facts
        self.rows += rows
        if self.rows:
            write_rows(f"provenance-{self.name}", self.rows)
        write_json(RESULTS / f"provenance-{self.name}.json", self.facts, mode=PUBLIC)


def settings_of(task: Task, split: Split) -> dict[str, Any]:
    """The sizes of an experiment, as they came out."""
    facts = {name: value for name, value in task._asdict().items() if name != "read"}
    sizes = {side: len(users) for side, users in split._asdict().items()}
    words = {
        side: sum(len(text.text.split()) for user in users for text in user.texts)
        for side, users in split._asdict().items()
    }
    return {**facts, "users": sizes, "words_of_texts": words}


def fitted(
    reference: Sequence[User],
    task: Task,
    work: Path,
    name: str,
    engine: Engine,
    like: str = "target",
    **options: Any,
) -> Fit:
    """Shadow models of a target in `work`, and the audit classifier."""
    given = {"shadows": task.shadows, "seed": SEED, **options}
    return fit_provenance(reference, work / name, like=work / like, engine=engine, **given)


class Target:
    """The target of a task and its variants, with the shadow models that serve all tables."""

    def __init__(
        self, name: str, given: argparse.Namespace, engine: Engine, task: Task | None = None
    ) -> None:
        self.name, self.task, self.engine = name, task or TASKS[name], engine
        self.split = self.task.split(given.data)
        self.work = given.work / name
        self.work.mkdir(parents=True, exist_ok=True)
        self.experiment = Experiment(name, self.work, settings_of(self.task, self.split))

    def trained(self, variant: str, **changes: Any) -> Model:
        """The target, or a variant of it, which is trained if it is not there."""
        options: dict[str, Any] = {"epochs": self.task.epochs, "seed": SEED, **changes}
        if self.task.vocabulary_of == "reference":
            words = (text.text for user in self.split.reference for text in user.texts)
            options["tokenizer"] = WordTokenizer.of(words, most=options.get("vocabulary", parts.VOCABULARY))
        trained(Training(self.split.members, self.work / variant, self.task.preset, options))
        model: Model = load_model(self.work / variant)
        return model

    def fit(self) -> Fit:
        """The shadow models, which are trained if they are not there."""
        return fitted(self.split.reference, self.task, self.work, "fit", self.engine)

    def trainings(self) -> Measured:
        """The seconds that the target and the shadow models took."""
        began = time.perf_counter()
        self.trained("target")
        seconds = time.perf_counter() - began
        self.fit()
        return [], {"target": seconds, "shadows": time.perf_counter() - began - seconds}

    def untrained(self, fit: Fit) -> Measured:
        """Weights as they were drawn: what the vocabulary alone gives away."""
        other = self.trained("untrained", epochs=1, learning_rate=1e-9)
        return self.compared("untrained", "random weights", other, fit, self.split.reference)

    def compared(
        self, part: str, setting: str, target: Model, fit: Fit, reference: Sequence[User]
    ) -> Measured:
        """Members and non-members, with all texts and all ranks."""
        audited = Audited.of(self.name, target, fit, reference)
        groups = audited.scores({"members": self.split.members, "non-members": self.split.non_members})
        rows = audited.rows(part, setting, groups["members"], groups["non-members"])
        return rows, parts.performance(target, self.split)

    def across(self, newspapers: Sequence[User]) -> Measured:
        """Shadow models of another domain."""
        fit, target = (
            fitted(newspapers, self.task, self.work, "fit-treebank", self.engine),
            self.trained("target"),
        )
        rows, _ = self.compared("cross domain", "all texts, all ranks", target, fit, newspapers)
        audited = Audited.of(self.name, target, fit, newspapers)
        return [*rows, *parts.outputs(audited, self.split, "outputs, cross domain")], None


def run_task(name: str, given: argparse.Namespace, engine: Engine) -> None:
    """The headline, and all that the same target and shadow models serve."""
    one = Target(name, given, engine)
    measure, split, task = one.experiment.part, one.split, one.task
    measure("trainings", one.trainings)
    target, fit = one.trained("target"), one.fit()
    audited = Audited.of(name, target, fit, split.reference)
    measure("performance", lambda: ([], parts.performance(target, split)))
    measure("headline", lambda: parts.headline(audited, split))
    if given.treebank is not None:
        newspapers = treebank(
            given.treebank, texts=task.texts, words=task.words, users=NEWSPAPER_USERS, seed=SEED
        )
        measure("cross-domain", lambda: one.across(newspapers))
    if name in {"words", "translation"}:  # as in the paper
        measure(
            "ablation", lambda: ([], parts.ablation(one.trained("no-dropout", dropout=0.0), split, seed=SEED))
        )
    measure("coverage", lambda: ([], parts.coverage(target, split)))
    measure("outputs", lambda: (parts.outputs(audited, split, "outputs, same domain"), None))
    measure("queries", lambda: (parts.queries(audited, split), None))
    if split.others:
        measure("noise", lambda: (parts.noise(audited, split), None))
    if name in {"words", "public"}:
        measure("untrained", lambda: one.untrained(fit))
    if name == "words":
        measure("obfuscation", lambda: (parts.obfuscation(audited, split, SEED), None))
        measure("features", lambda: (parts.features(audited, split), None))


def run_mismatched(given: argparse.Namespace, engine: Engine) -> None:
    """Table 2: shadow models with other layers, sizes and optimizer than the target."""
    task = TASKS["words"]
    split, work = task.split(given.data), given.work / "words"
    experiment = Experiment("mismatched", work, {**settings_of(task, split), "sizes": MISMATCHED_SIZES})

    def measure() -> Measured:
        sizes = {"hidden": MISMATCHED_SIZES, "embedding": MISMATCHED_SIZES}
        fit = fitted(
            split.reference,
            task,
            work,
            "fit-mismatched",
            engine,
            recipe="mismatched",
            shadows=FEWER_SHADOWS,
            training=sizes,
        )
        audited = Audited.of("words", load_model(work / "target"), fit, split.reference)
        groups = audited.scores({"members": split.members, "non-members": split.non_members})
        return audited.rows(
            "mismatched", "all texts, all ranks", groups["members"], groups["non-members"]
        ), None

    experiment.part("mismatched", measure)


def run_users(given: argparse.Namespace, engine: Engine) -> None:
    """Figure 2: targets trained on fewer users, each with shadow models of its own."""
    task = TASKS["words"]
    whole = task.split(given.data)
    experiment = Experiment("users", given.work, {**settings_of(task, whole), "numbers": NUMBERS_OF_USERS})
    for number in NUMBERS_OF_USERS:
        split = Split(whole.members[:number], [], whole.non_members[:number], whole.reference[: 2 * number])
        work = given.work / f"users-{number}"

        def measure(split: Split = split, work: Path = work) -> Measured:
            options = {"epochs": task.epochs, "seed": SEED}
            trained(Training(split.members, work / "target", task.preset, options))
            fit = fitted(split.reference, task, work, "fit", engine, shadows=FEWER_SHADOWS)
            target = load_model(work / "target")
            audited = Audited.of("words", target, fit, split.reference)
            groups = audited.scores({"members": split.members, "non-members": split.non_members})
            rows = audited.rows(
                "users", f"{len(split.members)} users", groups["members"], groups["non-members"]
            )
            return rows, parts.performance(target, split)

        experiment.part(f"users-{number}", measure)


def run_null(given: argparse.Namespace, engine: Engine) -> None:
    """A model that saw none of the users: are p-values uniform, and does the false-discovery rate hold?"""
    task = TASKS["words"]
    split, work = task.split(given.data), given.work / "words"
    experiment = Experiment("null", work, settings_of(task, split))
    sides = {"members": split.members, "non-members": split.non_members}

    def unseen() -> Measured:
        # Neither the half of a shadow model nor its seed, so that it is a copy of none, and the target's vocabulary.
        half = split.reference[: len(split.reference) // 2]
        options = {
            "epochs": task.epochs,
            "seed": SEED + 1,
            "tokenizer": load_model(work / "target").tokenizer,
        }
        trained(Training(half, work / "bystander", task.preset, options))
        fit = fitted(split.reference, task, work, "fit", engine)
        groups = Audited.of("words", load_model(work / "bystander"), fit, split.reference).scores(sides)
        return list(
            unseen_rows({side: group.scores for side, group in groups.items()}, MORE * given.audits)
        ), None

    def mixed() -> Measured:
        facts = msgspec.json.decode((RESULTS / "provenance-words.json").read_bytes())
        known = {
            side: {name: np.array(one) for name, one in scores.items()}
            for side, scores in facts["headline"]["scores"].items()
        }
        return list(mixed_rows(known, MORE * given.audits)), None

    experiment.part("mixed", mixed, NullRow)
    experiment.part(
        "blind", lambda: (list(blind_rows([*split.members, *split.non_members], given.audits)), None), NullRow
    )
    experiment.part("unseen", unseen, NullRow)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=[*TASKS, "mismatched", "users", "null"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--treebank", type=Path, help="a text file: shadow models of another domain, for table 3"
    )
    parser.add_argument("--work", type=Path, required=True, help="for the models")
    parser.add_argument("--engine", default="processes:2")
    parser.add_argument("--audits", type=int, default=200, help="simulated audits in each setting of null")
    given = parser.parse_args()
    others = {"mismatched": run_mismatched, "users": run_users, "null": run_null}
    with open_engine(given.engine) as engine:
        if given.command in others:
            others[given.command](given, engine)
        else:
            run_task(given.command, given, engine)


if __name__ == "__main__":
    main()
