"""Patterns for names of modules: those that people write are accepted, and those that `re` might never finish are refused."""

import json
import re
import shutil

import pytest
from peft import LoraConfig

from coalmine import load_model
from coalmine.errors import ModelError
from coalmine.models.transformers.name_patterns import is_bounded
from models.local_models import change_json, save_adapter, save_checkpoint

USUAL = [
    "",
    "q_proj",
    "all-linear",
    r".*\.(q_proj|v_proj)",
    r"(.*_)?proj",
    r"(q|k|v|o)_proj|(gate|up|down)_proj",
    r"^(?!.*lm_head).*proj$",
    r"(?i)Q_PROJ",
    r"(?P<first>q)_(?P=first)",
    r"model\.layers\.(1[0-9]|2[0-3])\..*(q|v)_proj",
    r".*\.layers\.\d+\..*\.(q|k)_proj.*",
    r".*decoder.*(SelfAttention|EncDecAttention).*(q|v)$",
    r"(?:.*?(?:vision|image|visual).*?(?:self_attn|attention|attn|mlp).*?(?:q_proj|k_proj))|(?:\bmodel\.layers\.[\d]{1,}\.(?:attn|mlp))",
    r"(\d{1,2}\.){2}proj",
    r"[]a]{,3}x{",
    "|".join(rf"model\.layers\.{number}\.q_proj" for number in range(500)),
]
SLOW = [
    r"(a+)+b",
    r"((a+))+b",
    r"(a*)*b",
    r"(?:\w+\.?)+$",
    r"(x+x+)+y",
    r"(a|a)*b",
    r"(a|b|ab)*c",
    r"(.*a){10}",
    r"((a{1,50}){1,50}){1,50}",
    r"(?:a?){30}a{30}",
    r".*.*.*.*.*.*x",
    "a?" * 40 + "a" * 40,
    "(.|.)" * 40 + "x",
    "(a|[a])" * 40 + "x",
    r"(a|\x61)" * 40 + "x",
    "(?i)" + "(a|A)" * 40 + "x",
    "(?x:(a+) # )\n)+",
    "q" * 20_001,
]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns(pattern):
    re.compile(pattern)
    assert is_bounded(pattern)


@pytest.mark.parametrize("pattern", SLOW)
def test_patterns_that_may_never_end(pattern):
    assert not is_bounded(pattern)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    config = LoraConfig(r=4, target_modules=r".*\.\d+\.attn\.c_attn", fan_in_fan_out=True)
    save_adapter(root / "adapter", save_checkpoint(root / "base"), config)
    return root / "adapter"


@pytest.mark.parametrize(
    "changes",
    [
        {"exclude_modules": r"([a-z_.0-9]+)+!"},
        {"target_modules": r"(.*)*c_attn"},
        {"rank_pattern": {r"([a-z_.0-9]+)+!": 4}},
        {"alpha_pattern": {r"([a-z_.0-9]+)+!": 4}},
        {"layers_pattern": [r"([a-z_.0-9]+)+!"], "layers_to_transform": [0]},
        {"modules_to_save": [r"([a-z_.0-9]+)+!"]},
        {"exclude_modules": "(?x) (a+ # )\n)+"},
    ],
)
def test_an_adapter_with_one_is_refused_before_it_is_matched(made, tmp_path, changes):
    """Without the check, none of these would end before the test run is given up."""
    directory = shutil.copytree(made, tmp_path / "adapter")
    change_json(directory / "adapter_config.json", **changes)
    with pytest.raises(ModelError, match="may take forever to match") as refused:
        load_model(directory)
    assert str(directory / "adapter_config.json") in str(refused.value)
    assert next(iter(changes)) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_pattern_that_becomes_one_inside_another_is_refused(made, tmp_path):
    """PEFT puts keys into parentheses of its own."""
    directory = shutil.copytree(made, tmp_path / "adapter")
    change_json(directory / "adapter_config.json", rank_pattern={"[a-z_.0-9]+)+(!": 4})
    with pytest.raises(ModelError, match="a pattern in rank_pattern is not a regular expression"):
        load_model(directory)


def test_a_usual_pattern_is_followed(made):
    assert (
        json.loads((made / "adapter_config.json").read_text())["target_modules"] == r".*\.\d+\.attn\.c_attn"
    )
    assert load_model(made).describe()["adapter_in_use"] is True
