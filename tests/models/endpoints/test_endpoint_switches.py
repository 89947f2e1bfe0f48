"""An endpoint that switches models is found out before a number of the other one is used, and a noisy one is not accused of it."""

import contextlib
import json
import re
import warnings

import pytest

from coalmine import Format, ScriptedModel, extract, serve
from coalmine.errors import CoalmineError, InputError, ModelChangedError, NotMeasurableError
from coalmine.models import connect, text_sequence
from coalmine.models.endpoints.cache import AnswerCache
from endpoints.fault_proxy import FaultProxy, Switch
from models.endpoint_servers import local_bits, twisted
from models.random_networks import CHARACTERS
from models.switching import QUICK, TEXTS, TRIED, bits, check_often, scripted


@pytest.fixture(scope="module")
def model():
    return scripted()


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    check_often(monkeypatch)


@pytest.fixture(scope="module")
def expected(model):
    return local_bits(model, TEXTS)


def test_how_much_it_costs(scripted_url, expected):
    with FaultProxy(scripted_url) as proxy, connect(proxy.url, **QUICK) as model:
        tried = sum(proxy.requests.values())
        assert tried == TRIED
        assert bits(model) == pytest.approx(expected, abs=1e-9)
        # 40 texts are asked in three parts. After the first come two questions, after the others three.
        whole = 40 + 2 + 3 + 3
        assert sum(proxy.requests.values()) == tried + whole
        # A call with one text costs one more, and what is in the cache nothing.
        bits(model, ["another text"])
        bits(model)
        assert sum(proxy.requests.values()) == tried + whole + 2
        assert model.spent()["requests"] == tried + whole + 2 + 1  # which models there are


@pytest.mark.parametrize("first", [TRIED + number for number in (1, 2, 16, 17, 19, 30, 46)])
@pytest.mark.parametrize("other", ["other", "near"])
def test_a_switch_is_found_wherever_it_happens(
    scripted_url, other_url, near_url, expected, tmp_path, first, other
):
    switch = Switch({"other": other_url, "near": near_url}[other], first=first)
    cache = tmp_path / "answers"
    with FaultProxy(scripted_url, switch=switch) as proxy:
        with (
            pytest.raises(ModelChangedError, match="became another one") as problem,
            connect(proxy.url, **QUICK, cache=cache) as model,
        ):
            bits(model)
        assert "while texts were scored" in str(problem.value)
        # What is left in the cache is of the first model alone.
        proxy.switch = None
        asked = sum(proxy.requests.values())
        with connect(proxy.url, **QUICK, cache=cache) as model:
            assert bits(model) == pytest.approx(expected, abs=1e-9)
        if first > TRIED + 20:
            assert sum(proxy.requests.values()) - asked < 40


@pytest.mark.parametrize("first", range(2, TRIED + 1))
@pytest.mark.parametrize("other", ["other", "near"])
def test_a_switch_while_the_server_is_tried_mixes_no_numbers(scripted_url, other_url, near_url, first, other):
    """It is found, or the server is taken for less than it is, or all numbers are of the second model."""
    place, changed = {"other": (other_url, {"a": 5}), "near": (near_url, {"e": 3.003})}[other]
    second = scripted(**changed)
    expected = [s.log_perplexity_bits for s in second.score([text_sequence(second, t) for t in TEXTS[:9]])]
    with FaultProxy(scripted_url, switch=Switch(place, first=first)) as proxy, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some look as if they were not deterministic
        with contextlib.suppress(ModelChangedError), connect(proxy.url, **QUICK) as model:
            if model.capability.level == "scorer":
                assert bits(model, TEXTS[:9]) == pytest.approx(expected, abs=1e-9)


def test_the_error_says_where(scripted_url, other_url):
    with (
        FaultProxy(scripted_url, switch=Switch(other_url, first=TRIED + 38)) as proxy,
        connect(proxy.url, **QUICK) as model,
    ):
        with pytest.raises(ModelChangedError, match="differ by up to") as problem:
            bits(model)
        # The list of models is a request too, and each part of 16 has a check of two or three.
        last = 1 + TRIED + 18 + 19
        said = f"became another one between its requests {last} and {last + 9} of this run"
        assert said in str(problem.value)
        asked = sum(proxy.requests.values())
        # Nobody gets anything more from it, also not from the cache, and also not if the first model is back.
        proxy.switch = None
        for again in (lambda: bits(model, TEXTS[:1]), lambda: model.complete(["a"], length=1)):
            with pytest.raises(ModelChangedError):
                again()
        assert sum(proxy.requests.values()) == asked


@pytest.mark.filterwarnings("ignore:.*in different ways")
def test_servers_that_take_turns(scripted_url, other_url):
    for switch in ({"every": 2}, {"every": 3}, {"rate": 0.5}, {"first": TRIED + 1, "every": 2}):
        with (
            FaultProxy(scripted_url, switch=Switch(other_url, **switch)) as proxy,
            # One that is found during the first test is not a scorer.
            pytest.raises((ModelChangedError, AttributeError)),
            connect(proxy.url, **QUICK) as model,
        ):
            bits(model)


def test_a_share_of_answers_from_another_model_is_found_as_often_as_promised(scripted_url, other_url):
    """A switch that is over before the next check: the more answers it gave, the likelier one of them is asked again."""
    found = 0
    for number in range(12):
        # The first half of the second part of 16 answers, and then the first model again.
        switch = Switch(other_url, first=TRIED + 19, last=TRIED + 26)
        with FaultProxy(scripted_url, switch=switch) as proxy, connect(proxy.url, **QUICK) as model:
            with contextlib.suppress(ModelChangedError):
                bits(model, [f"{number} {text}" for text in TEXTS[:32]])
                found -= 1
            found += 1
    # Half of them within what chance allows (p < 0.01 outside); the choice is seeded by the questions.
    assert 2 <= found <= 10


def test_a_switch_between_two_runs(scripted_url, other_url, tmp_path):
    with FaultProxy(scripted_url) as proxy:
        with connect(proxy.url, **QUICK, cache=tmp_path / "answers") as model:
            bits(model, TEXTS[:30])
        proxy.switch = Switch(other_url)
        with pytest.raises(ModelChangedError, match="no longer gives the answers that are in the cache"):
            connect(proxy.url, **QUICK, cache=tmp_path / "answers")


@pytest.fixture(scope="module")
def taught_urls():
    """Two models that differ in nothing but how well they know one text."""
    first, second = (
        ScriptedModel(CHARACTERS, memory={"my pin is 4921": share}, frequencies={"e": 3, "t": 2, " ": 4})
        for share in (1e-7, 1e-6)
    )
    with serve(first, port=0, name="m") as one, serve(second, port=0, name="m") as two:
        yield one.url, two.url


@pytest.mark.parametrize("runs", [1, 2])
def test_models_that_differ_only_where_the_run_looks(taught_urls, tmp_path, runs):
    """Nothing else shows it: neither the text that the server was tried with nor any other than the canary."""
    first, second = taught_urls
    with FaultProxy(first) as proxy:
        with connect(proxy.url, **QUICK, cache=tmp_path / "answers") as model:
            bits(model, ["my pin is 4921"])
            proxy.switch = Switch(second)
            if runs == 1:
                with pytest.raises(ModelChangedError, match="differ by up to"):
                    bits(model)
                return
        with connect(proxy.url, **QUICK, cache=tmp_path / "answers") as model:
            bits(model, ["my pin is 4921"])
            with pytest.raises(ModelChangedError, match="differ by up to"):
                bits(model)


def test_a_cache_that_lost_what_the_server_is_recognized_by(scripted_url, tmp_path):
    cache = tmp_path / "answers"
    with connect(scripted_url, **QUICK, cache=cache) as model:
        bits(model, TEXTS[:3])
        client = model._client
        kept = AnswerCache(cache, url=client.connection.url, model="m")
        for question in [*client._tried]:
            kept.remove(question)
        kept.close()
    with pytest.raises(InputError, match="has lost the answers by which the model 'm'"):
        connect(scripted_url, **QUICK, cache=cache)


class TestOtherKinds:
    @pytest.mark.parametrize("liar", ["no_echo", "text_only"])
    def test_servers_that_can_do_less(self, scripted_url, other_url, liar):
        with FaultProxy(scripted_url, liar=liar) as proxy, connect(proxy.url, **QUICK) as model:
            model.complete(["my pin is "], length=4)
            proxy.switch = Switch(other_url)
            with pytest.raises(ModelChangedError, match="while prompts were continued"):
                model.complete(["the cat sat"], length=4)

    def test_extraction_by_a_prompt(self, scripted_url, other_url):
        with FaultProxy(scripted_url, liar="text_only") as proxy, connect(proxy.url, **QUICK) as model:
            assert extract(model, Format("my pin is {digits:4}"), method="prompt").found
            proxy.switch = Switch(other_url)
            with pytest.raises(ModelChangedError):
                extract(model, Format("my cat is {digits:4}"), method="prompt")

    def test_a_model_with_other_tokens_or_without_numbers(self, scripted_url):
        for liar in ("no_echo", "no_logprobs", "shifted", "halved", "bits", "offset", "refuses_logprobs"):
            with (
                FaultProxy(scripted_url, liar=liar, liar_from=TRIED + 20) as proxy,
                connect(proxy.url, **QUICK, retries=1) as model,
                pytest.raises(CoalmineError) as problem,
            ):
                bits(model)
            # The others are not valid answers of any model.
            if liar in {"bits", "offset"}:
                assert problem.type is ModelChangedError

    def test_numbers_that_were_scaled_from_the_beginning(self, scripted_url):
        """Halved ones add up to more than 1. What adds up to less is a distribution like any other (docs/guides/endpoints.md)."""
        for liar in ("halved", "bits", "offset"):
            with (
                FaultProxy(scripted_url, liar=liar) as proxy,
                connect(proxy.url, **QUICK, retries=1) as model,
            ):
                assert (model.capability.level == "scorer") == (liar != "halved")


class TestWhatAnswersSayOfThemselves:
    @pytest.mark.parametrize("since", [1, 4, TRIED + 5, TRIED + 30])
    def test_another_name_is_an_error(self, scripted_url, since):
        count = iter(range(1, 10_000))

        def twist(_, document):
            return {**document, "model": "m" if next(count) < since else "m-\x1b[31m2"}

        with twisted(scripted_url, twist) as place:
            if since == 1:
                with connect(place.url, **QUICK) as model:
                    assert len(bits(model)) == 40
                return
            said = "its answers name the model 'm- [31m2', and named 'm' before"
            with (
                pytest.raises(ModelChangedError, match=re.escape(said)),
                connect(place.url, **QUICK) as model,
            ):
                bits(model)

    def test_names_that_are_missing_or_no_names(self, scripted_url, expected):
        names = iter([None, 5, "", ["m"], "m"] * 100)
        with (
            twisted(scripted_url, lambda _, document: {**document, "model": next(names)}) as place,
            connect(place.url, **QUICK) as model,
        ):
            assert bits(model) == pytest.approx(expected, abs=1e-9)

    def test_the_cache_remembers_the_name(self, scripted_url, tmp_path):
        name = "one"
        with twisted(scripted_url, lambda _, document: {**document, "model": name}) as place:
            with connect(place.url, **QUICK, cache=tmp_path / "answers") as model:
                bits(model, TEXTS[:3])
            name = "two"
            with pytest.raises(ModelChangedError, match="'two', and named 'one' before"):
                connect(place.url, **QUICK, cache=tmp_path / "answers")

    def test_fingerprints_that_change_are_no_error(self, scripted_url, expected):
        count = iter(range(10_000))

        def twist(_, document):
            return {**document, "system_fingerprint": f"fp-{next(count)}"}

        with twisted(scripted_url, twist) as place, connect(place.url, **QUICK) as model:
            tried = len(place.bodies)
            assert bits(model) == pytest.approx(expected, abs=1e-9)
            # At the end of a window: the first text, an earlier one, one of the window, and one that is in doubt.
            assert len(place.bodies) - tried <= 40 + 4 * 3

    def test_an_answer_with_a_new_fingerprint_is_the_one_that_is_asked_again(self, scripted_url, other_url):
        """One answer of 16 is of another model, which says that it is another one."""
        with FaultProxy(scripted_url, switch=Switch(other_url, first=TRIED + 5, last=TRIED + 5)) as proxy:
            count = iter(range(1, 10_000))

            def twist(_, document):
                return {**document, "system_fingerprint": "b" if next(count) == TRIED + 5 else "a"}

            with (
                twisted(proxy.url, twist) as place,
                connect(place.url, **QUICK) as model,
                pytest.raises(ModelChangedError, match="differ by up to"),
            ):
                bits(model, TEXTS[:16])


def test_a_cap_holds_for_the_checks_too(scripted_url, model, tmp_path):
    cache, texts = tmp_path / "answers", [f"number {number} of many" for number in range(70)]
    with FaultProxy(scripted_url) as proxy:
        for cap in (TRIED + 1 + 16, TRIED + 1 + 17, 5):
            with connect(proxy.url, **QUICK, cache=cache, most_requests=cap) as asked:
                with pytest.raises(NotMeasurableError, match=f"cap of {cap} requests"):
                    bits(asked, texts)
                assert asked.spent()["requests"] == cap
        with connect(proxy.url, **QUICK, cache=cache) as asked:
            own = [s.log_perplexity_bits for s in model.score([text_sequence(model, t) for t in texts])]
            assert bits(asked, texts) == pytest.approx(own, abs=1e-9)
        prompts = [json.loads(body)["prompt"] for body in proxy.bodies]
    # Of what was answered under a cap, each time no more was lost than came after the last probe; a text also comes again where the
    # server is to be recognized by it.
    assert sum(prompts.count(text) for text in texts) <= 70 + 3 * 16 + 2 * 8


def test_the_model_is_recognized_in_what_describes_it(scripted_url, other_url, near_url):
    hashes = []
    for place in (scripted_url, scripted_url, other_url, near_url):
        with connect(place, **QUICK) as model:
            hashes.append(model.describe()["identity_sha256"])
    assert hashes[0] == hashes[1] != hashes[2]
