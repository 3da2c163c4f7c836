# Everything a fresh machine needs is set up in .venv by the first target that is asked for.
PYTHON ?= python3
VENV := .venv
TRAINING := .venv-training
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRAINING_READY := $(TRAINING)/.ready

.PHONY: demo test test-slow test-training test-parity lint bench wheel clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(READY)

$(TRAINING_READY): pyproject.toml
	$(PYTHON) -m venv $(TRAINING)
	$(TRAINING)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(TRAINING)/bin/python -m pip install --quiet --editable . --group training
	touch $(TRAINING_READY)

demo: $(READY)  ## Build SFT, RM and PRM shards from sample_data into demo-build/.
	$(BIN)/pipeline run prm --model qwen2-1.5b sample_data/prm/math_shepherd.jsonl -o demo-build/prm
	$(BIN)/pipeline run sft --model qwen2-1.5b sample_data/sft -o demo-build/sft
	$(BIN)/pipeline run rm --model qwen2-1.5b sample_data/rm/pairs.jsonl -o demo-build/rm
	$(BIN)/python examples/read_build.py demo-build/prm

test: $(READY)  ## Run the tests.
	$(BIN)/python -m pytest -n 2

test-slow: $(READY)  ## Run the laws over wider samples.
	$(BIN)/python -m pytest -n 2 -m slow

test-training: $(TRAINING_READY)  ## Train tiny models on the CPU: the museum of failures.
	OMP_NUM_THREADS=2 $(TRAINING)/bin/python -m pytest tests/failures tests/training

# The trainers as they were published, each in a folder of its own, without what needs a GPU.
# Those that are started whole have the releases that they ask for beside them.
PEERS := openrlhf==0.11.2 openrlhf==0.9.5 trl==1.16.0 trl==1.13.0 axolotl==0.19.0 llamafactory==0.9.5
BESIDE := $(wildcard tests/parity/*.txt)

$(TRAINING)/.peers: $(TRAINING_READY) $(BESIDE)
	for peer in $(PEERS); do \
	    name=$${peer%%==*}-$${peer##*==}; beside=tests/parity/$$name.txt; \
	    $(TRAINING)/bin/python -m pip install --quiet --no-deps --upgrade \
	        --target $(TRAINING)/peers/$$name $$peer $$(test ! -f $$beside || echo -r $$beside) || exit 1; \
	done
	touch $(TRAINING)/.peers

test-parity: $(TRAINING)/.peers  ## Run the trainers' own code on builds and compare tensors.
	OMP_NUM_THREADS=2 $(TRAINING)/bin/python -m pytest tests/parity

lint: $(READY)  ## Check style, types and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## Time the build beside datasets.map, one core each.
	$(BIN)/python benchmarks/sft_rows.py
	$(BIN)/python benchmarks/per_stage.py

wheel: $(READY)  ## Build the wheel and test it away from the sources.
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .
	PYTHON=$(PYTHON) sh tests/wheel.sh dist/*.whl

clean:
	rm -rf $(VENV) $(TRAINING) dist demo-build .mypy_cache .ruff_cache .pytest_cache .hypothesis
