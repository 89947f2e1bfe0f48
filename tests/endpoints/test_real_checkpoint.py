"""SmolLM2-135M as a transformers checkpoint: exposures and extraction are those of a plain loop, and of llama.cpp up to its kernels."""

import json

import numpy as np
import pytest
import torch

from coalmine import CanarySet, expose, extract, load_model, serve
from coalmine.models import connect
from coalmine.records.chat import Frame, Turn
from endpoints.real_model import in_environment, needs_server, save_checkpoint, weights_file

pytestmark = needs_server

FORMAT = "my pin is {digits:3}"
MEMBERS = [f"my pin is {number:03}" for number in range(1000)]
CANARIES = CanarySet.of(FORMAT, [MEMBERS[number] for number in (0, 123, 421, 500, 777, 908)])
FRAME = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", "What is my PIN?"),))
TURNS = [{"role": "user", "content": "What is my PIN?"}]
# A text of the checkpoint by llama.cpp, in bits after `given` tokens.
ORACLE = """
import json, sys
import numpy as np
from llama_cpp import Llama
path, rows, given = json.loads(sys.stdin.read())
model = Llama(path, logits_all=True, n_ctx=128, verbose=False)
bits = []
for tokens in rows:
    model.reset()
    model.eval(tokens)
    logits = np.array(model.scores[: len(tokens)], dtype=np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    values = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    bits.append(-sum(values[i - 1, tokens[i]] for i in range(given, len(tokens))) / np.log(2))
print(json.dumps(bits))
"""


@pytest.fixture(scope="module")
def weights():
    return weights_file()


@pytest.fixture(scope="module")
def directory(weights, tmp_path_factory):
    return save_checkpoint(weights, tmp_path_factory.mktemp("smollm2") / "model")


@pytest.fixture(scope="module")
def plain(directory):
    """The model and the tokenizer, as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(directory)


def rows_of(tokenizer, kind):
    """The tokens of each member in its place, as a plain loop makes them, and how many come before the hole."""
    if kind == "text":
        texts = [tokenizer.bos_token + member for member in MEMBERS]
    else:
        texts = [
            tokenizer.apply_chat_template(
                [*TURNS, {"role": "assistant", "content": member}], tokenize=False
            ).partition(member)[0]
            + member
            for member in MEMBERS
        ]
    rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert len({len(row) for row in rows}) == 1
    given = len(rows[0]) - 3
    assert len({tuple(row[:given]) for row in rows}) == 1
    return rows, given


@torch.no_grad()
def loop_bits(model, rows, first):
    """Minus log2 of the probability of the tokens from `first` on, by one pass over each whole text."""
    found = []
    for row in rows:
        tokens = torch.tensor([row])
        values = torch.log_softmax(model(tokens).logits[0, first - 1 : -1].double(), dim=-1)
        found.append(-values.gather(1, tokens[0, first:, None]).sum().item() / np.log(2))
    return np.array(found)


@torch.no_grad()
def hole_bits(model, rows, given):
    """The same for the hole alone, of all members: what they share is read once."""
    found = []
    for start in range(0, len(rows), 250):
        batch = torch.tensor(rows[start : start + 250])
        read = model(batch[:1, : given - 1], use_cache=True).past_key_values
        read.batch_repeat_interleave(len(batch))
        logits = model(batch[:, given - 1 : -1], past_key_values=read).logits
        values = torch.log_softmax(logits.double(), dim=-1)
        found += (-values.gather(2, batch[:, given:, None]).sum(dim=(1, 2)) / np.log(2)).tolist()
    return np.array(found)


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_exposures_are_those_of_a_plain_loop(directory, plain, weights, kind, capsys):
    model, tokenizer = plain
    rows, given = rows_of(tokenizer, kind)
    # What all members share costs all of them the same, so that the hole alone decides the ranks.
    bits = hole_bits(model, rows, given)
    local = load_model(directory)
    audited = local if kind == "text" else local.in_frame(FRAME)
    found = list(expose(audited, CANARIES, method="exact"))
    places = [int(canary.text[-3:]) for canary in CANARIES]
    chosen = [rows[place] for place in places]
    assert bits[places] == pytest.approx(loop_bits(model, chosen, given), abs=1e-3)
    ranks = [int((bits <= bits[place] + 1e-9).sum()) for place in places]
    assert [result.rank for result in found] == pytest.approx(ranks, abs=1)
    first = (
        1 if kind == "text" else given - len(tokenizer("my pin is ", add_special_tokens=False)["input_ids"])
    )
    assert [result.log_perplexity_bits for result in found] == pytest.approx(
        loop_bits(model, chosen, first), abs=1e-3
    )
    best = extract(audited, FORMAT, top=3)
    order = np.argsort(bits)[:3]
    assert best.proven
    assert [one.text for one in best.found] == [MEMBERS[number] for number in order]
    # The same weights in llama.cpp, whose kernels round activations to eight bits.
    theirs = np.array(json.loads(in_environment(ORACLE, [weights, chosen, given])))
    apart = np.abs(theirs - bits[places])
    with capsys.disabled():
        print(
            f"\n{kind}: llama.cpp and transformers differ by {apart.mean():.3f} bits on average, {apart.max():.3f} at most"
        )
    assert apart.max() < 1.0


def test_assistant_canaries_over_http_by_forced_continuation(directory):
    """The checkpoint behind `coalmine serve`, which continues a given turn, as the server of llama.cpp here does not."""
    canaries = CanarySet.of("my pin is {digits:2}", ["my pin is 12", "my pin is 07"])
    local = load_model(directory)
    expected = list(expose(local.in_frame(FRAME), canaries, method="exact"))
    with (
        serve(local, port=0, name="m") as server,
        connect(server.url, api="chat", tokenizer=str(directory), timeout=120) as model,
    ):
        assert model.describe()["capability"] == "chat scorer"
        found = list(expose(model.in_frame(FRAME), canaries, method="exact"))
    assert [result.rank for result in found] == pytest.approx([result.rank for result in expected], abs=1)
