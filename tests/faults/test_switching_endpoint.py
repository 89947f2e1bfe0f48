"""Commands whose endpoint becomes another model: exit 2, no result, and the same command resumes with the first model."""

import json

import pytest

from coalmine import Format, expose, plant, serve
from coalmine.errors import InputError, ModelChangedError
from coalmine.models import connect
from endpoints.fault_proxy import FaultProxy, Switch
from faults.kill_cases import SMALL
from faults.serving import served
from models.switching import scripted

TEMPLATE = "my {re:cat|dog|pin} is {digits:2}"
HEARD = [180, 100]  # of some 320 requests, and of those that are left


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A few canaries from a space of 300 members."""
    place = tmp_path_factory.mktemp("planted")
    (place / "corpus.txt").write_text("\n".join(f"line {number} of a corpus" for number in range(200)) + "\n")
    plant(
        place / "corpus.txt",
        [Format(TEMPLATE)],
        repeat=[1, 4],
        canaries=4,
        references=250,
        seed=0,
        out=place / "out",
    )
    return place / "out" / "canaries.json"


@pytest.fixture(scope="module")
def servers():
    with serve(scripted(), port=0, name="m") as first, serve(scripted(a=5), port=0, name="m") as second:
        yield first.url, second.url


COMMANDS = {
    "expose": (["expose", "{url}", "{canaries}", "--method", "exact"], "exposure.json"),
    "extract": (["extract", "{url}", "-f", TEMPLATE], "extraction.json"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_meets_two_models(fork_server, servers, planted, tmp_path, command):
    words, result = COMMANDS[command]
    first, second = servers
    with FaultProxy(first) as proxy:

        def run(out):
            filled = [word.replace("{url}", proxy.url).replace("{canaries}", str(planted)) for word in words]
            return fork_server.run([*filled, "--out", str(tmp_path / out), "--quiet"])

        whole = run("whole")
        assert whole.code == 0, whole.err
        for heard in HEARD:
            proxy.count_from_here()
            proxy.switch = Switch(second, first=heard)
            broken = run("broken")
            assert broken.code == 2, broken.err
            assert broken.err.startswith("coalmine: the model 'm' at ")
            assert "became another one between its requests" in broken.err
            assert broken.err.count("\n") == 1
            assert not (tmp_path / "broken" / result).exists()
            # While the other model is there, nothing is put together.
            proxy.switch = Switch(second)
            mixed = run("broken")
            assert mixed.code == 2
            assert "no longer gives the answers that are in the cache" in mixed.err
            assert not (tmp_path / "broken" / result).exists()
        proxy.switch = None
        resumed = run("broken")
        assert resumed.code == 0, resumed.err
        names = {path.name for path in (tmp_path / "whole").iterdir()}
        assert {path.name for path in (tmp_path / "broken").iterdir()} == names
        for name in names - {"run.json", "answers.sqlite"}:
            assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_search_that_was_stopped_does_not_go_on_with_another_model_where_its_answers_were_not_kept(
    servers, planted, tmp_path
):
    """It left scores by the first model, but no answers by which the model could be recognized."""
    first, second = servers
    with FaultProxy(first, switch=Switch(second, first=200)) as proxy:

        def run(**switch):
            proxy.count_from_here()
            proxy.switch = Switch(second, **switch) if switch else None
            with connect(proxy.url, probe_texts=["the cat sat"]) as model:
                return expose(model, planted, method="sampled", samples=200, resume=tmp_path)

        with pytest.raises(ModelChangedError):
            run(first=200)
        assert (tmp_path / "unfinished.units").is_file()
        with pytest.raises(InputError, match="belongs to another run"):
            run(first=1)
        assert len(run()) > 0


@pytest.fixture(scope="module")
def tuned(fork_server, inputs):
    """The model of the inputs, trained a little longer."""
    place = inputs / "tuned"
    epochs = [*SMALL[:-1], "epochs=3"]
    ended = fork_server.run(["train", str(inputs / "planted"), "-o", str(place), *epochs, "--quiet"])
    assert ended.code == 0, ended.err
    return place


def test_a_model_that_answers_20_of_116_requests(fork_server, inputs, tuned, tmp_path):
    """Real servers, each in a process of its own; the other model is the same one, trained a little longer, and soon gone again."""
    with (
        served(fork_server, inputs / "model") as first,
        served(fork_server, tuned, "--name", "model") as second,
        FaultProxy(first) as proxy,
    ):

        def run(out):
            words = ["extract", proxy.url, "-f", "my pin is {digits:2}", "--method", "brute"]
            return fork_server.run([*words, "--out", str(tmp_path / out), "--quiet"])

        whole = run("whole")
        assert whole.code == 0, whole.err
        asked = sum(proxy.requests.values())
        proxy.count_from_here()
        proxy.switch = Switch(second, first=60, last=79)
        broken = run("broken")
        assert broken.code == 2, broken.err
        assert "became another one between its requests" in broken.err
        assert not (tmp_path / "broken" / "extraction.json").exists()
        proxy.switch = None
        resumed = run("broken")
        assert resumed.code == 0, resumed.err
    results = [(tmp_path / out / "extraction.json").read_bytes() for out in ("whole", "broken")]
    assert results[0] == results[1]
    (told,) = json.loads((tmp_path / "whole" / "run.json").read_bytes())["identity"]
    assert told["answers"] == 100
    assert told["probes"] + told["repeats"] < 16
    assert told["answers"] + told["probes"] + told["repeats"] < asked < 150
    assert 0 < told["unnoticed"]["scattered"] < 1


def test_an_endpoint_at_an_ipv6_address(fork_server, inputs, tmp_path):
    """The result is the same as that from the other address of this machine."""
    found = []
    for host in ("127.0.0.1", "::1"):
        with served(fork_server, inputs / "model", "--host", host) as url:
            assert ("[::1]" in url) == (host == "::1")
            out = tmp_path / str(len(found))
            words = ["extract", url, "-f", "my pin is {digits:1}", "--method", "brute", "--quiet"]
            ended = fork_server.run([*words, "--out", str(out)])
            assert ended.code == 0, ended.err
            found.append(json.loads((out / "extraction.json").read_bytes())["found"])
    assert found[0] == found[1]
