"""`coalmine demo` as it ships: it takes about a minute, and shows what it promises."""

import json
from statistics import median

from coalmine import train, verify_run
from coalmine.cli.start import EPOCHS


def test_the_demo_shows_exposure_rising_with_repetitions(coalmine, tmp_path):
    ended = coalmine("demo", cwd=tmp_path)
    (results,) = tmp_path.glob("coalmine-demo/model-*-audit/exposure/exposure.json")
    exposures: dict[int, list[float]] = {}
    for result in json.loads(results.read_text())["results"]:
        low, high = result["estimate"]["low"], result["estimate"]["high"]
        assert low <= result["estimate"]["value"] <= high
        exposures.setdefault(result["repetitions"], []).append(result["estimate"]["value"])
    assert sorted(exposures) == [0, 1, 4, 16, 64]
    medians = [median(exposures[repetitions]) for repetitions in sorted(exposures)]
    assert medians[0] < 2.5, "canaries that were never trained on are near 1"
    assert medians[1:] == sorted(medians[1:])
    assert medians[4] > medians[2] + 5
    assert "canary" in ended.out
    assert "What it means" in ended.out
    assert "Never trained on: median exposure" in ended.out

    # The training of a second run would find the model there.
    (model,) = tmp_path.glob("coalmine-demo/model-????????")
    again = train(tmp_path / "coalmine-demo" / "planted", out=model, epochs=EPOCHS, seed=0)
    assert not again.trained_now

    # And all of it is what was written.
    found = verify_run(tmp_path / "coalmine-demo")
    assert found.sound, [row for row in found.files if row.state != "as written"]
    assert found.ignored == 2  # the corpus and the report
