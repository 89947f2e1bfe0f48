"""One pass over the true text says what generating token by token would say, and what beam search finds is what there is."""

import itertools
import math

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    ElectraConfig,
    ElectraForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
)

from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models import (
    CharacterTokenizer,
    Reciter,
    Sampling,
    TokenSequence,
    check_model,
    from_transformers,
    from_transformers_pairs,
)
from coalmine.models.inference import following, incremental, reading
from coalmine.randomness import arrays
from coalmine.search.walks.beam import free_beam
from models.random_networks import ARCHITECTURES, random_model
from models.tiny_pairs import byte_level_pairs, tiny_pairs
from models.tiny_transformers import byte_level, tiny

SUFFIX = 12


def random_prompts(size, many=14, longest=9, seed=0):
    draw = arrays(seed, "test", "prompts")
    return [tuple(draw.integers(0, size, length).tolist()) for length in draw.integers(1, longest + 1, many)]


def targets_of(written, size, seed=0):
    """What was written, as it is or changed at one place; with where greedy decoding leaves it."""
    draw = arrays(seed, "test", "targets")
    targets, misses = [], []
    for place, tokens in enumerate(written):
        changed = list(tokens)
        miss = None
        if place % 3:
            miss = int(draw.integers(len(changed)))
            changed[miss] = (changed[miss] + int(draw.integers(1, size))) % size
        targets.append(tuple(changed))
        misses.append(miss)
    return targets, misses


def generate_by_transformers(network, prompts):
    """Its own batched generate(), with prompts padded on the left, as people use it."""
    width = max(map(len, prompts))
    ids = torch.tensor([[7] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    network.generation_config.eos_token_id = None
    network.generation_config.pad_token_id = 7
    found = network.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=SUFFIX, min_new_tokens=SUFFIX
    )
    return found[:, width:].tolist()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
def test_one_pass_gives_the_verdicts_of_generate(kind):
    network = tiny(kind, len(byte_level()))
    model = from_transformers(network, byte_level())
    prompts = [(*model.context, *prompt) for prompt in random_prompts(model.tokenizer.size)]
    written = generate_by_transformers(network, prompts)
    targets, misses = targets_of(written, model.tokenizer.size)
    sequences = [TokenSequence(*pair) for pair in zip(prompts, targets, strict=True)]
    assert [one.first_miss for one in model.follow(sequences)] == misses
    assert [one.first_miss for one in model.follow(sequences, stop_at_miss=True)] == misses
    assert [one.first_miss for one in model.follow(sequences[::-1])] == misses[::-1]
    assert None in misses


@pytest.mark.parametrize("model", [*ARCHITECTURES, "mamba", "pairs"])
def test_other_networks_too(model):
    if model == "mamba":
        asked = from_transformers(tiny("mamba", len(byte_level())), byte_level())
    elif model == "pairs":
        pairs = byte_level_pairs()
        asked = from_transformers_pairs(tiny_pairs("bart", len(pairs) + 3), pairs).given("a source")
    else:
        asked = random_model(model, dtype=torch.float64)
    assert isinstance(asked, Reciter)
    prompts = [(*asked.context, *prompt) for prompt in random_prompts(asked.tokenizer.size)]
    written = asked.generate(prompts, length=SUFFIX)
    # Targets of different lengths are side by side in a batch.
    written = [tokens[: 1 + place % SUFFIX] for place, tokens in enumerate(written)]
    targets, misses = targets_of(written, asked.tokenizer.size)
    sequences = [TokenSequence(*pair) for pair in zip(prompts, targets, strict=True)]
    assert [one.first_miss for one in asked.follow(sequences)] == misses
    assert [one.first_miss for one in asked.follow(sequences, stop_at_miss=True)] == misses
    for sequence, one in zip(sequences, asked.follow(sequences, samplings=[Sampling()]), strict=True):
        score = asked.score([sequence])[0]
        assert one.log2_probabilities[0] == pytest.approx(-score.log_perplexity_bits, abs=1e-5)
        assert one.first_miss == (None if score.is_argmax.all() else int(np.argmin(score.is_argmax)))


@pytest.mark.parametrize(("piece", "at_a_time"), [(1, 1), (3, 40), (5, 1 << 20)])
def test_no_budget_of_memory_changes_an_answer(monkeypatch, piece, at_a_time):
    model = from_transformers(tiny("gpt2", len(byte_level())), byte_level())
    samplings = [Sampling(), Sampling(0.7, 40)]
    prompts = [(*model.context, *prompt) for prompt in random_prompts(model.tokenizer.size)]
    targets, misses = targets_of(model.generate(prompts, length=SUFFIX), model.tokenizer.size)
    sequences = [TokenSequence(*pair) for pair in zip(prompts, targets, strict=True)]
    whole = model.follow(sequences, samplings=samplings)
    monkeypatch.setattr(following, "PIECE", piece)
    monkeypatch.setitem(reading.TOKENS_AT_A_TIME, "cpu", at_a_time)
    parts = model.follow(sequences, samplings=samplings)
    assert [one.first_miss for one in parts] == misses
    assert [one.first_miss for one in model.follow(sequences, stop_at_miss=True)] == misses
    for first, second in zip(whole, parts, strict=True):
        assert second.log2_probabilities == pytest.approx(first.log2_probabilities, abs=1e-9)


def test_logits_of_the_context_and_of_padding_are_not_made():
    network = tiny("gpt2", len(byte_level()))
    model = from_transformers(network, byte_level())
    context = (*model.context, *range(5, 45))
    sequences = [TokenSequence(context, tuple(range(length))) for length in (10, 3, 7)]
    model.follow(sequences)
    made = count_logits(network)
    model.follow(sequences)
    assert sum(made) == 10 + 3 + 7


def count_logits(network):
    """Of how many tokens at a time its last layer makes logits from now on."""
    made = []
    network.lm_head.register_forward_hook(lambda _, __, output: made.append(math.prod(output.shape[:-1])))
    return made


def test_no_more_logits_are_made_than_memory_has_room_for_and_few_until_the_first_miss(monkeypatch):
    network = tiny("gpt2", len(byte_level()))
    model = from_transformers(network, byte_level())
    many, room = 50, 20
    prompts = [(*model.context, *prompt) for prompt in random_prompts(model.tokenizer.size, many=many)]
    prompts = [(prompt * 9)[:9] for prompt in prompts]
    written = model.generate(prompts, length=SUFFIX)
    # One is recited, and all others are left at the first token.
    targets = [
        ((tokens[0] + 1) % 7, *tokens[1:]) if place else tokens for place, tokens in enumerate(written)
    ]
    sequences = [
        TokenSequence(prompt, tuple(tokens)) for prompt, tokens in zip(prompts, targets, strict=True)
    ]
    model.follow(sequences[:1])
    made = count_logits(network)
    monkeypatch.setitem(reading.LOGITS_IN_CACHE, "cpu", room * model.tokenizer.size)
    misses = [one.first_miss for one in model.follow(sequences, stop_at_miss=True)]
    assert misses == [None] + [0] * (many - 1)
    assert max(made) <= room
    assert sum(made) == many + SUFFIX - 1
    monkeypatch.setattr(incremental, "LOGITS_AT_A_TIME", 3 * model.tokenizer.size)
    made.clear()
    assert [one.first_miss for one in model.follow(sequences, stop_at_miss=True)] == misses
    assert max(made) <= 3


def scaled_logits(kind):
    """Models that do something to what their last layer makes: divide it, or bend it."""
    shape = {
        "vocab_size": len(byte_level()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "initializer_range": 0.5,
    }
    torch.manual_seed(0)
    if kind == "granite":
        return GraniteForCausalLM(GraniteConfig(**shape, logits_scaling=8.0)).eval()
    return Gemma2ForCausalLM(Gemma2Config(**shape, head_dim=16, final_logit_softcapping=2.0)).eval()


@pytest.mark.parametrize("kind", ["granite", "gemma2"])
def test_what_a_model_does_to_its_logits_is_not_left_out(kind):
    model = from_transformers(scaled_logits(kind), byte_level())
    prompts = [(*model.context, *prompt) for prompt in random_prompts(model.tokenizer.size)]
    targets, misses = targets_of(model.generate(prompts, length=SUFFIX), model.tokenizer.size)
    sequences = [TokenSequence(*pair) for pair in zip(prompts, targets, strict=True)]
    assert [one.first_miss for one in model.follow(sequences, stop_at_miss=True)] == misses
    for sequence, one in zip(sequences, model.follow(sequences, samplings=[Sampling()]), strict=True):
        [score] = model.score([sequence])
        assert one.log2_probabilities[0] == pytest.approx(-score.log_perplexity_bits, abs=1e-4)
    assert model.follow([TokenSequence(model.context, ())])[0].first_miss is None


def bits_of(network, sequence):
    """What the model itself says of a target, in one call with all of the text."""
    context, target, _ = sequence
    with torch.inference_mode():
        logits = network(input_ids=torch.tensor([context + target]), use_cache=False).logits[0]
    log = torch.log_softmax(logits[len(context) - 1 : -1].double(), dim=-1)
    return sum(float(log[place, token]) for place, token in enumerate(target)) / math.log(2)


def followed_bits(model, sequence):
    return float(model.follow([sequence], samplings=[Sampling()])[0].log2_probabilities[0])


@pytest.mark.parametrize("kind", ["granite", "gemma2"])
def test_a_model_that_is_asked_before_it_has_learned_anything_and_after(kind):
    network = scaled_logits(kind)
    learned = network.lm_head.weight.detach().clone()
    sequence = TokenSequence((0, 5, 6, 7), (8, 9, 10))
    with torch.no_grad():
        network.lm_head.weight.zero_()  # all logits are 0, and a scale of them changes nothing
        model = from_transformers(network, byte_level())
        assert followed_bits(model, sequence) == pytest.approx(-3 * math.log2(model.tokenizer.size))
        network.lm_head.weight.copy_(learned)
    assert followed_bits(model, sequence) == pytest.approx(bits_of(network, sequence), abs=1e-4)


def test_a_last_layer_that_is_exchanged_is_followed():
    network = tiny("llama", len(byte_level()))
    model = from_transformers(network, byte_level())
    sequence = TokenSequence((*model.context, 5, 6, 7), (8, 9, 10))
    before = followed_bits(model, sequence)
    torch.manual_seed(1)
    get_peft_model(network, LoraConfig(r=4, target_modules=["lm_head"], init_lora_weights=False)).eval()
    after = followed_bits(model, sequence)
    assert after == pytest.approx(bits_of(network, sequence), abs=1e-6)
    assert after != pytest.approx(before, abs=1e-2)


@pytest.mark.parametrize("kind", ["electra", "mamba"])
def test_more_between_the_layers_and_the_last_one(kind):
    """Electra's last layer reads fewer numbers than the others make; Mamba's in half precision are rounded before it reads them."""
    if kind == "electra":
        torch.manual_seed(0)
        shape = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 48, "num_hidden_layers": 2}
        config = ElectraConfig(
            vocab_size=len(byte_level()),
            num_attention_heads=4,
            is_decoder=True,
            initializer_range=0.5,
            **shape,
        )
        network = ElectraForCausalLM(config).eval()
    else:
        network = tiny("mamba", len(byte_level()), dtype=torch.float16)
    model = from_transformers(network, byte_level())
    context = (*model.context, 5, 6, 7)
    [written] = model.generate([context], length=5)
    assert model.follow([TokenSequence(context, tuple(written))])[0].first_miss is None
    sequence = TokenSequence(context, (*written[:2], 8, 9))
    assert followed_bits(model, sequence) == pytest.approx(bits_of(network, sequence), abs=0.01)


def test_an_adapter_that_waits_for_words_is_refused():
    config = LoraConfig(
        r=4, target_modules=["q_proj"], alora_invocation_tokens=[33, 34], task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(tiny("llama", len(byte_level())), config).eval()
    with pytest.raises(ModelError, match="'default' is an activated LoRA"):
        from_transformers(adapted, byte_level())


def test_an_adapter_is_followed_with_and_without_it():
    base = tiny("llama", len(byte_level()))
    torch.manual_seed(1)
    adapted = get_peft_model(
        base, LoraConfig(r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    )
    model = from_transformers(adapted, byte_level())
    context = (*model.context, 5, 6, 7)
    found = []
    for one in (model, model.reference):
        [written] = one.generate([context], length=SUFFIX)
        sequence = TokenSequence(context, tuple(written))
        [followed] = one.follow([sequence], samplings=[Sampling()])
        [score] = one.score([sequence])
        assert followed.first_miss is None
        assert followed.log2_probabilities[0] == pytest.approx(-score.log_perplexity_bits, abs=1e-4)
        found.append(written)
    assert found[0] != found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_among_equal_logits_the_lowest_id_is_the_argmax(dtype):
    model = random_model("transformer", dtype=dtype)
    with torch.no_grad():
        model._network.output.weight.zero_()
        model._network.output.bias.zero_()
        model._network.output.bias[[3, 9]] = 5.0
    [written] = model.generate([model.context], length=4)
    assert written == [3, 3, 3, 3]
    lower, higher = model.follow(
        [TokenSequence(model.context, (3, 3, 3)), TokenSequence(model.context, (3, 9, 3))]
    )
    assert lower.first_miss is None
    assert higher.first_miss == 1


def test_logits_that_a_softmax_would_round_to_equal_ones_are_told_apart():
    model = random_model("transformer")
    with torch.no_grad():
        model._network.output.weight.zero_()
        model._network.output.bias.fill_(0.25)
        model._network.output.bias[5] = float(np.nextafter(np.float32(0.25), np.float32(1.0)))
    log2 = model.start([model.context]).log2_probabilities[0]
    assert log2[0] == log2[5]
    assert model.generate([model.context], length=2) == [[5, 5]]
    sequences = [TokenSequence(model.context, (5, 5)), TokenSequence(model.context, (0, 5))]
    assert [one.first_miss for one in model.follow(sequences)] == [None, 0]
    assert [one.is_argmax.tolist() for one in model.score(sequences)] == [[True, True], [False, True]]


@pytest.mark.parametrize(
    "sampling", [Sampling(0.5), Sampling(2.0, 3), Sampling(1.0, 1), Sampling(0.9, 10**6)]
)
def test_probabilities_of_sampling_are_those_of_brute_force(sampling):
    model = random_model("lstm", dtype=torch.float64)
    sequences = [
        TokenSequence(
            (*model.context, *prompt), tuple(model.generate([(*model.context, *prompt)], length=5)[0])
        )
        for prompt in random_prompts(model.tokenizer.size, many=4)
    ]
    sequences += [TokenSequence(context, (*target[:3], 11, 2)) for context, target, _ in sequences]
    for sequence, one in zip(sequences, model.follow(sequences, samplings=[sampling]), strict=True):
        total = 0.0
        for place, token in enumerate(sequence.target):
            log2 = model.start([sequence.context + sequence.target[:place]]).log2_probabilities[0]
            weights = np.exp2(log2 / sampling.temperature)
            if sampling.top_k is not None and sampling.top_k < len(weights):
                weights[weights < np.sort(weights)[-sampling.top_k]] = 0
            total += math.log2(weights[token] / weights.sum()) if weights[token] else -math.inf
        assert one.log2_probabilities[0] == pytest.approx(total, abs=1e-6)


def test_what_cannot_be_followed_is_refused():
    model = random_model("gru")
    fine = TokenSequence(model.context, (1, 2))
    assert model.follow([]) == []
    assert model.follow([TokenSequence(model.context, ())])[0].first_miss is None
    with pytest.raises(NotMeasurableError):
        model.follow([TokenSequence((), (1,))])
    with pytest.raises(InputError):
        model.follow([TokenSequence(model.context, (10**6,))])
    for samplings in ([Sampling(0.0)], [Sampling(1.0, 0)], [Sampling(math.nan)]):
        with pytest.raises(InputError):
            model.follow([fine], samplings=samplings)
    with pytest.raises(InputError):
        model.follow([fine], samplings=[Sampling()], stop_at_miss=True)
    for broken in (torch.nan, torch.inf):
        with torch.no_grad():
            model._network.output.bias[0] = broken
        with pytest.raises(ModelOutputError):
            model.follow([fine])


def test_the_conformance_suite_sees_a_reciter_that_is_wrong(monkeypatch):
    model = random_model("lstm")
    texts = ["some text", "another, longer text".replace(",", "")]
    assert check_model(model, texts) == []
    honest = type(model).follow
    monkeypatch.setattr(
        type(model),
        "follow",
        lambda self, sequences, **options: [
            one._replace(first_miss=None) for one in honest(self, sequences, **options)
        ],
    )
    with pytest.raises(Exception, match="first"):
        check_model(model, texts)


def test_a_beam_of_one_is_greedy_and_a_wide_one_finds_all_there_is():
    model = random_model("transformer", dtype=torch.float64)
    prompts = [(*model.context, *prompt) for prompt in random_prompts(model.tokenizer.size, many=6)]
    for beams, greedy in zip(
        free_beam(model, prompts, length=7, width=1), model.generate(prompts, length=7), strict=True
    ):
        assert beams.tokens.tolist() == [greedy]
    small = random_model("gru", CharacterTokenizer("abc"), dtype=torch.float64)
    [beams] = free_beam(small, [small.context], length=3, width=64)
    every = list(itertools.product(range(4), repeat=3))
    scores = small.score([TokenSequence(small.context, tokens) for tokens in every])
    bits = {tokens: score.log_perplexity_bits for tokens, score in zip(every, scores, strict=True)}
    assert list(map(tuple, beams.tokens.tolist())) == sorted(every, key=bits.get)
    assert -beams.log2_probabilities == pytest.approx(sorted(bits.values()), abs=1e-9)


def test_a_narrow_beam_keeps_the_likeliest_beginnings():
    model = random_model("gru", dtype=torch.float64)
    width, length = 5, 6
    kept = [((), 0.0)]
    for _ in range(length):
        grown = [
            ((*tokens, token), score + log2)
            for tokens, score in kept
            for token, log2 in enumerate(model.start([(*model.context, *tokens)]).log2_probabilities[0])
        ]
        kept = sorted(grown, key=lambda one: -one[1])[:width]
    [beams] = free_beam(model, [model.context], length=length, width=width)
    assert beams.tokens.tolist() == [list(tokens) for tokens, _ in kept]
    assert beams.log2_probabilities == pytest.approx([score for _, score in kept], abs=1e-9)
