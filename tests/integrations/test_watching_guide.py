"""The code of the guide runs, with a smaller corpus and a model made on the spot."""

import re
from pathlib import Path

import pytest

from coalmine.corpus import write_embedded_corpus
from integrations.tiny_training import tiny_gpt2
from models.tiny_transformers import byte_level

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "watching.md"
SMALLER = {
    "{digits:9}": "{digits:5}",
    "references=500": "references=30, canaries=1, withhold=0.0",
    "num_train_epochs=3, ": "num_train_epochs=1, use_cpu=True, dataloader_pin_memory=False, disable_tqdm=True, ",
    "every=100)": "every=5)",
}


@pytest.mark.filterwarnings("ignore")
def test_the_guide_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightning.pytorch")
    monkeypatch.chdir(tmp_path)
    write_embedded_corpus("corpus.txt", 6_000)
    tiny_gpt2().save_pretrained("my-model")
    byte_level().save_pretrained("my-model")
    guide = GUIDE.read_text("utf-8")
    for long, short in SMALLER.items():
        assert long in guide, f"{long} is no longer there to be made smaller"
        guide = guide.replace(long, short)
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL):
        exec(compile(code, "guide", "exec"), names)
    printed = capsys.readouterr().out
    assert "17 of 17 copies of 2 planted canaries reach the loss" in printed
    assert names["survival"].ok
    assert "coalmine/exposure_median_x16" in printed
    # The names of metrics and counts that the guide explains are those that are there.
    explained = re.findall(r"^\| `(coalmine/\w+)`", guide, re.MULTILINE)
    logged = {name for entry in names["trainer"].state.log_history for name in entry}
    assert len(explained) == 3
    assert set(explained) <= logged
    for count in ("reached", "masked", "split", "missing", "other_tokens", "at_row_start"):
        assert f"| `{count}` |" in guide
        assert hasattr(names["survival"].canaries[0], count)
