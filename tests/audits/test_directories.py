"""Results have a place beside the model."""

from pathlib import Path

from coalmine.audits.directories import audit_directory, audited_model


def test_the_directory_is_beside_the_model_and_back(tmp_path, monkeypatch):
    assert audit_directory(tmp_path / "model") == tmp_path / "model-audit"
    assert audited_model(tmp_path / "model-audit") == tmp_path / "model"
    assert audited_model(tmp_path / "-audit") is None
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    assert audit_directory(".", "exposure") == tmp_path / "model-audit" / "exposure"
    assert audit_directory("../model/") == Path("../model-audit")
