"""Models that vLLM runs: their numbers are those of a plain transformers loop, and an engine whose numbers depend on the order is refused.

Everyday tests ask a double that answers as vLLM does. With COALMINE_TEST_VLLM=1, `make test-vllm` asks vLLM itself.
"""

import contextlib
import http.server
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import warnings

import huggingface_hub
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from coalmine import CanarySet, Format, expose, extract, recite
from coalmine.corpus import build_index
from coalmine.corpus.chat.framing import frame_of
from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError, TooLongError
from coalmine.models import (
    TokenSequence,
    check_model,
    from_transformers,
    from_vllm,
    load_model,
    text_sequence,
)
from coalmine.records.chat import Frame, Turn
from models import vllm_double
from models.local_models import save_adapter, save_checkpoint
from models.tiny_chat import chatml

REAL = os.environ.get("COALMINE_TEST_VLLM") == "1"
FORM = Format("pin {digits:2}")
TEXTS = ["pin 42", "hello, my pin is 07", "a ☕"]
FRAME = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", "What is it?"),))


@pytest.fixture(scope="module", autouse=True)
def engine_of_vllm():
    if REAL:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm", vllm_double)
        yield


@pytest.fixture(scope="module")
def network():
    # vLLM's CPU build reads heads of 32 numbers and more.
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(chatml()), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=512, initializer_range=0.15, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def directory(network, tmp_path_factory):
    found = tmp_path_factory.mktemp("vllm") / "chat"
    network.save_pretrained(found)
    chatml().save_pretrained(found)
    return found


@pytest.fixture(scope="module")
def model(directory):
    return load_model(f"vllm:{directory}")


@torch.inference_mode()
def plain(network, row):
    """The log2 probability and rank of each token but the first, by transformers alone."""
    logits = network(input_ids=torch.tensor([row])).logits[0, :-1].double()
    log2 = torch.log_softmax(logits, dim=-1) / np.log(2)
    own = log2.gather(1, torch.tensor(row[1:])[:, None])
    return own[:, 0].numpy(), (log2 > own).sum(dim=1).numpy() + 1


def test_scores_and_ranks_are_those_of_a_plain_loop(model, network):
    sequences = [text_sequence(model, text) for text in TEXTS]
    for sequence, score in zip(sequences, model.score(sequences, ranks=True), strict=True):
        log2, ranks = plain(network, [*sequence.context, *sequence.target])
        assert score.log2_probabilities == pytest.approx(log2[len(sequence.context) - 1 :], abs=1e-4)
        assert score.ranks.tolist() == ranks[len(sequence.context) - 1 :].tolist()
        assert (score.is_argmax == (score.ranks == 1)).all()


def test_it_conforms_and_cannot_be_walked(model):
    assert check_model(model, TEXTS) == ["Stepper"]
    described = model.describe()
    assert (described["adapter"], described["precision"], described["prefix_caching"]) == (
        "vllm",
        "float32",
        False,
    )
    assert len(described["weights_sha256"]) == 1


def test_the_likeliest_tokens_and_greedy_text_are_the_networks(model, network):
    sequence = text_sequence(model, "pin 4")
    (listed,) = model.likeliest([sequence], k=3)
    with torch.inference_mode():
        row = [*sequence.context, *sequence.target]
        logits = network(input_ids=torch.tensor([row])).logits[0, len(sequence.context) - 1 : -1]
        written = network.generate(torch.tensor([row]), do_sample=False, max_new_tokens=5, min_new_tokens=5)
    assert [[token for token, _ in one] for one in listed] == logits.topk(3).indices.tolist()
    assert model.generate([row], length=5) == [written[0, len(row) :].tolist()]


@pytest.mark.parametrize("frame", [None, FRAME], ids=["plain", "chat"])
def test_exposure_is_the_rank_by_brute_force(model, network, frame):
    canaries = CanarySet.of(FORM, ["pin 42", "pin 07"])
    canaries = CanarySet(list(canaries), canaries.formats, frame=frame)
    found = expose(model, canaries)
    framed = model if frame is None else model.in_frame(frame)
    bits = {}
    for text in FORM:
        sequence = text_sequence(framed, text)
        log2, _ = plain(network, [*sequence.context, *sequence.target])
        bits[text] = -log2[len(sequence.context) - 1 :].sum()
    assert [one.rank for one in found] == [
        sum(other <= bits[canary.text] for other in bits.values()) for canary in canaries
    ]
    assert {one.method for one in found} == {"exact"}
    if frame is not None:
        written = chatml().apply_chat_template(
            [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "pin 42"}],
            tokenize=False,
        )
        whole = chatml().encode(written, add_special_tokens=False)
        sequence = text_sequence(framed, "pin 42")
        assert whole[: len(sequence.context) + len(sequence.target)] == [*sequence.context, *sequence.target]
        assert "chat_template_sha256" in framed.describe()


def test_extraction_scores_every_member(model):
    found, framed = extract(model, FORM, top=1), model.in_frame(frame_of("messages", "assistant"))
    scores = {text: framed.score([text_sequence(framed, text)])[0].log_perplexity_bits for text in FORM}
    assert found.found[0].text == min(scores, key=scores.get)
    assert found.proven


def test_recitation_is_that_of_the_network(model, network, directory, tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"hello, my pin is {number:02}\n" for number in range(30)))
    index = build_index(tmp_path / "corpus.txt", tmp_path / "index", tokenizer=directory)
    shares = []
    for one in (model, from_transformers(network, chatml())):
        found = recite(one, index, contexts=[4], suffix=1, per_bucket=20)
        shares.append([(group.bucket, group.recited.value, group.recited.n) for group in found.groups])
    assert shares[0] == shares[1]
    assert shares[0]


def test_a_text_that_is_too_long_or_comes_after_nothing_is_refused(model):
    with pytest.raises(TooLongError, match="longer than the"):
        model.score([TokenSequence((0,), (1,) * model.max_length)])
    with pytest.raises(NotMeasurableError, match="after nothing"):
        model.score([TokenSequence((), (1,))])
    with pytest.raises(NotMeasurableError, match="follows nothing"):
        model.generate([[]], length=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"precision": "float64"}, "vLLM computes in auto, float32, float16, bfloat16, and float64"),
        ({"kind": "masked"}, "leave out --kind"),
        ({"device": "cuda:1"}, "leave out --device"),
        ({"device_map": '{"": "cpu"}'}, "give the device map auto"),
    ],
)
def test_what_vllm_does_not_do_is_refused(directory, options, says):
    with pytest.raises(InputError, match=says):
        load_model(f"vllm:{directory}", **options)


def test_what_it_cannot_load_is_a_sentence(tmp_path):
    with pytest.raises(ModelError, match="model not found"):
        load_model(f"vllm:{tmp_path / 'none'}")
    adapter = save_adapter(tmp_path / "adapter", save_checkpoint(tmp_path / "base"))
    with pytest.raises(ModelError, match="holds an adapter"):
        load_model(f"vllm:{adapter}")


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that keeps the tokens that it is sent, and has nothing."""

    def do_GET(self):
        self.server.tokens.append(self.headers.get("authorization"))
        self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 - as the class of the standard library has it

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.tokens = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


# What an engine may try for a setting that names code: fetch it, with the user's token.
DOWNLOAD = """
with contextlib.suppress(OSError):
    huggingface_hub.hf_hub_download("some/kernel", "kernel.py", endpoint=where, token="hf_of-the-user")
"""


def download(where):
    exec(DOWNLOAD, {"contextlib": contextlib, "huggingface_hub": huggingface_hub, "where": where})


def download_everywhere(where):
    """In this process, in one that is forked from it, and in a new one."""
    download(where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = multiprocessing.get_context("fork").Process(target=download, args=(where,))
        child.start()
    child.join()
    code = f"import contextlib, sys, huggingface_hub; where = sys.argv[1]{DOWNLOAD}"
    subprocess.run([sys.executable, "-c", code, where], check=True)


@pytest.mark.skipif(REAL, reason="vLLM downloads only where it finds a reason to")
def test_no_process_of_an_engine_asks_a_hub_or_sends_a_token(directory, monkeypatch, tmp_path, hub):
    where, own = f"http://127.0.0.1:{hub.server_port}", vllm_double.LLM.__init__
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # imported without the variable
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    def downloading(self, *arguments, **options):
        download_everywhere(where)
        own(self, *arguments, **options)

    monkeypatch.setattr(vllm_double.LLM, "__init__", downloading)
    load_model(f"vllm:{directory}")
    assert hub.tokens == []
    download(where)
    assert set(hub.tokens) == {"Bearer hf_of-the-user"}  # which shows that this test can fail


def test_the_settings_of_a_quantized_checkpoint_are_checked_too(directory, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(directory, changed)
    settings = json.loads((changed / "config.json").read_text())
    settings |= {
        "quantization_config": {"quant_method": "gptq", "bits": 4},
        "attn_implementation": "some/kernel",
    }
    (changed / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="names code in a hub as its attn_implementation"):
        load_model(f"vllm:{changed}")


@pytest.mark.skipif(REAL, reason="vLLM's own bug cannot be made at will")
@pytest.mark.parametrize("stale", [True, False])
def test_an_engine_whose_numbers_depend_on_the_order_is_refused(directory, stale, monkeypatch):
    monkeypatch.setattr(vllm_double.LLM, "stale", stale)
    engine = vllm_double.LLM(
        directory, dtype="float32", load_format="safetensors", enable_prefix_caching=True
    )
    if stale:
        with pytest.raises(ModelOutputError, match="depends on the order of the prompts"):
            from_vllm(engine, chatml())
    else:
        assert from_vllm(engine, chatml()).describe()["prefix_caching"]


@pytest.mark.skipif(REAL, reason="vLLM answers every prompt")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda answer: setattr(answer, "prompt_logprobs", None), "log-probabilities of 0 tokens"),
        (lambda answer: answer.prompt_logprobs.pop(), "log-probabilities of"),
        (lambda answer: answer.prompt_logprobs[1].clear(), "no log-probability for a token"),
        (lambda answer: setattr(answer, "prompt_token_ids", [0]), "other prompts than it was given"),
        (
            lambda answer: answer.prompt_logprobs.__setitem__(
                1, {answer.prompt_token_ids[1]: vllm_double.Logprob(float("nan"), 1)}
            ),
            "nan as a log-probability",
        ),
    ],
)
def test_an_answer_that_is_not_one_is_refused(model, monkeypatch, damage, says):
    own = vllm_double.LLM._answer

    def damaged(self, tokens, sampling):
        answer = own(self, tokens, sampling)
        damage(answer)
        return answer

    monkeypatch.setattr(vllm_double.LLM, "_answer", damaged)
    with pytest.raises(ModelOutputError, match=says):
        model.score([text_sequence(model, "pin 42")])


def test_it_stays_in_its_process(model):
    from coalmine.search.walks.members import Members
    from coalmine.search.walks.works import ScoreTexts

    assert "more processes" in ScoreTexts(Members(model, FORM)).only_here
