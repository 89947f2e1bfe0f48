"""Results have a place beside the model."""

from pathlib import Path

from transformers.trainer_utils import rotate_checkpoints

from coalmine.evidence.directories import audit_directory, audited_model, beside, model_of_result


def test_the_directory_is_beside_the_model_and_back(tmp_path, monkeypatch):
    assert audit_directory(tmp_path / "model") == tmp_path / "model-audit"
    assert audited_model(tmp_path / "model-audit") == tmp_path / "model"
    assert audited_model(tmp_path / "-audit") is None
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    assert audit_directory(".", "exposure") == tmp_path / "model-audit" / "exposure"
    assert audit_directory("../model/") == Path("../model-audit")


def test_results_of_a_checkpoint_are_not_where_its_trainer_removes_checkpoints(tmp_path):
    checkpoint = tmp_path / "out" / "checkpoint-20"
    checkpoint.mkdir(parents=True)
    directory = audit_directory(checkpoint)
    assert directory == tmp_path / "out-audit" / "checkpoint-20"
    assert audited_model(directory) == checkpoint
    assert model_of_result(directory / "exposure" / "exposure.json") == checkpoint
    assert audited_model(checkpoint) is None
    directory.mkdir(parents=True)
    assert beside(checkpoint) == (directory,)
    # The trainer of transformers removes all that it takes for checkpoints but the newest.
    (tmp_path / "out" / "checkpoint-30").mkdir()
    rotate_checkpoints(output_dir=str(tmp_path / "out"), save_total_limit=1)
    assert not checkpoint.exists()
    assert directory.exists()
