"""Networks with random weights, large enough that any mistake in a state would be seen."""

import torch

from coalmine.models import CharacterTokenizer
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.reference.checkpoint import save_model
from coalmine.models.reference.networks import NetworkConfig, build_network

CHARACTERS = "0123456789 abcdefghijklmnopqrstuvwxyz"
ARCHITECTURES = ["lstm", "gru", "cnn", "transformer"]


def random_model(architecture: str, tokenizer=None, *, dtype=torch.float32, seed=0) -> StatefulModel:
    torch.manual_seed(seed)
    tokenizer = tokenizer or CharacterTokenizer(CHARACTERS)
    config = NetworkConfig(
        architecture=architecture,
        vocabulary=tokenizer.size,
        embedding=12,
        hidden=16,
        layers=2,
        kernel=3,
        heads=2,
    )
    network = build_network(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return StatefulModel(network.to(dtype), tokenizer)


def save_network(directory, model):
    """Write the directory that `load_model` reads, with the weights of such a model."""
    save_model(directory, model._network, model.tokenizer)
