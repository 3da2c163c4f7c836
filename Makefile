# Everything a fresh machine needs is set up in .venv by the first target that is asked for.
PYTHON ?= python3
VENV := .venv
TRAINING := .venv-training
SCHEDULERS := .venv-schedulers
SITE := .venv-site
VENDORS := .venv-vendors
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRAINING_READY := $(TRAINING)/.ready

# A module is compiled when it is first imported: most modules of most packages never are.
INSTALL := -m pip install --quiet --no-compile

# Fills an environment ($(1), its Python) with packages ($(2)): uv takes a third of the processor time
# of pip, which knows the indexes and certificates of its own settings. Both are the first
# environment's: to set up a pip in each takes longer than most of them.
filled = { $(BIN)/uv pip install --quiet --python $(1) $(2) \
    || $(BIN)/python -m pip --quiet --python $(1) install --no-compile $(2); }

# Where this is set, each of the thousands of commands that tests start compiles every module again.
export PYTHONDONTWRITEBYTECODE :=

# Where tests find chat templates as vendors ship them; those that need them are skipped elsewhere.
export POSTTRAIN_TEMPLATES ?= $(CURDIR)/$(VENDORS)/models/templates

.PHONY: demo test fuzz test-slow test-schedules test-training test-parity test-trainers compatibility lint docs site bench wheel lock clean

# CI asks for the versions that passed last; where one cannot be had, the newest that fit are taken.
LOCK := .ci/constraints.txt
ifdef POSTTRAIN_CONSTRAINTS
locked = $(call filled,$(1),$(2) --constraint "$(POSTTRAIN_CONSTRAINTS)") || \
    { echo "Not all of $(POSTTRAIN_CONSTRAINTS) can be installed: the newest that fit are." >&2; $(filled); }
else
locked = $(filled)
endif

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --upgrade 'pip>=25.1' uv
	$(call locked,$(BIN)/python,--editable . --group dev)
	touch $(READY)

$(TRAINING_READY): pyproject.toml
	$(PYTHON) -m venv $(TRAINING)
	$(TRAINING)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(TRAINING)/bin/python $(INSTALL) --editable . --group training
	touch $(TRAINING_READY)

demo: $(READY)  ## Build SFT, RM and PRM shards from sample_data into demo-build/.
	$(BIN)/pipeline run prm --model qwen2-1.5b sample_data/prm/math_shepherd.jsonl -o demo-build/prm
	$(BIN)/pipeline run sft --model qwen2-1.5b sample_data/sft -o demo-build/sft
	$(BIN)/pipeline run rm --model qwen2-1.5b sample_data/rm/pairs.jsonl -o demo-build/rm
	$(BIN)/python examples/read_build.py demo-build/prm

test: $(READY)  ## Run the tests.
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=20

fuzz: $(READY)  ## Run the property tests on examples that no run has drawn before.
	FUZZ=1 $(BIN)/python -m pytest -n 2 -m hypothesis

# A package of sources has the templates of many models. It is fetched and never built: pip only asks
# for what would build it.
CARRIER := llama-cpp-python==0.3.36
CARRIED := templates ggml-vocab-qwen35.gguf ggml-vocab-gemma-4.gguf

$(VENDORS)/.ready: | $(READY)
	$(PYTHON) -m venv --without-pip $(VENDORS)
	{ $(call filled,$(VENDORS)/bin/python,scikit-build-core pathspec) \
	        && $(BIN)/python -m pip --quiet --python $(VENDORS)/bin/python download --no-deps --no-binary :all: \
	            --no-build-isolation --dest $(VENDORS) $(CARRIER) \
	        && tar -xzf $(VENDORS)/*.tar.gz -C $(VENDORS) --strip-components 3 \
	            --wildcards $(CARRIED:%='*/llama.cpp/models/%'); } \
	    || echo "$(CARRIER) cannot be fetched here: tests of vendors' templates are skipped." >&2
	rm -f $(VENDORS)/*.tar.gz
	touch $@

test-slow: $(READY) $(VENDORS)/.ready  ## Run the same over wider samples.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow --durations=20 \
	    --ignore tests/test_schedules.py --ignore tests/test_clusters.py

# Each scheduler in an environment of its own: they ask for different versions of the same packages.
$(SCHEDULERS)/.ready: $(wildcard tests/schedulers/*.txt) | $(READY)
	for tool in $(^:tests/schedulers/%.txt=%); do \
	    $(PYTHON) -m venv --without-pip $(SCHEDULERS)/$$tool || exit 1; \
	    $(call filled,$(SCHEDULERS)/$$tool/bin/python,--requirement tests/schedulers/$$tool.txt) \
	        || exit 1; \
	done
	touch $@

# Slurm as Debian has it, unpacked and not installed; elsewhere its test is skipped.
SLURM := slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15

$(SCHEDULERS)/slurm/.ready:
	mkdir -p $(SCHEDULERS)/slurm
	cd $(SCHEDULERS)/slurm && { apt-get download -q $(SLURM) \
	        || { apt-get update -q && apt-get download -q $(SLURM); } } \
	    && for package in *.deb; do dpkg -x $$package .; done \
	    && ln -sfn usr/bin bin \
	    || echo "Slurm cannot be fetched here: its test is skipped." >&2
	touch $@

test-schedules: $(READY) $(SCHEDULERS)/.ready $(SCHEDULERS)/slurm/.ready  ## Give examples of schedules to their schedulers; build on a Ray cluster and with Slurm.
	SCHEDULERS=$$(echo $(CURDIR)/$(SCHEDULERS)/*/bin | tr ' ' ':') \
	    $(BIN)/python -m pytest -m 'slow or not slow' tests/test_schedules.py tests/test_clusters.py

WITH_TORCH := OMP_NUM_THREADS=1 $(TRAINING)/bin/python -m pytest -n 2 -m 'slow or not slow' --durations=20

test-training: $(TRAINING_READY) $(VENDORS)/.ready  ## Train tiny models on the CPU: the museum of failures.
	$(WITH_TORCH) tests/failures tests/training

# The trainers as they were published, each in a folder of its own with what it needs and the
# environment has not. Sources are built beside the torch that is there, without kernels for a GPU.
PEERS := $(wildcard tests/parity/peers/*.txt)
FROM_SOURCE := DS_BUILD_OPS=0 FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE
PEER_PIP := $(FROM_SOURCE) $(TRAINING)/bin/python $(INSTALL) --no-build-isolation

$(TRAINING)/.peers: $(TRAINING_READY) $(PEERS)
	$(TRAINING)/bin/python $(INSTALL) setuptools wheel
	$(PEER_PIP) --group parity
	for peer in $(PEERS); do \
	    $(PEER_PIP) --no-deps --upgrade --requirement $$peer \
	        --target $(TRAINING)/peers/$$(basename $$peer .txt) || exit 1; \
	done
	touch $(TRAINING)/.peers

test-parity: $(TRAINING)/.peers $(VENDORS)/.ready  ## Run the trainers' own code on builds and compare tensors.
	$(WITH_TORCH) tests/parity

test-trainers: $(TRAINING)/.peers $(VENDORS)/.ready  ## Both, started once.
	$(WITH_TORCH) tests/failures tests/training tests/parity

compatibility: $(TRAINING)/.peers $(VENDORS)/.ready  ## The same, recorded: what docs/compatibility.md says was run.
	rm -f tests/parity/ran.json
	WIDE=1 PARITY_RECORD=1 $(WITH_TORCH) tests/parity
	$(BIN)/python docs/generate.py

lint: $(READY)  ## Check style, types and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## Write the generated pages, tables and pictures of docs/.
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/pictures.py

$(SITE)/.ready: pyproject.toml | $(READY)
	$(PYTHON) -m venv --without-pip $(SITE)
	$(call filled,$(SITE)/bin/python,--group site)
	touch $(SITE)/.ready

site: $(SITE)/.ready  ## Build the site of docs/ into site/; a broken link or an unlisted page stops it.
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --strict

bench: $(READY) $(TRAINING)/.peers  ## Measure builds beside other programs; writes docs/performance.md.
	$(BIN)/python -m benchmarks

wheel: $(READY)  ## Build the wheel and test it away from the sources.
	rm -rf dist
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .
	PYTHON=$(BIN)/python sh tests/wheel.sh dist/posttrain_pipeline-*.whl

release: wheel site  ## Build the wheel and the site, and record builds that later versions must open.
	PYTHONPATH=tests $(BIN)/python tests/recorded_builds.py

lock: $(READY)  ## Write the versions of what .venv has: CI installs these.
	$(BIN)/python -m pip freeze --exclude-editable | grep -v '@' > $(LOCK)

clean:
	rm -rf $(VENV) $(TRAINING) $(SCHEDULERS) $(SITE) $(VENDORS) site dist demo-build .mypy_cache .ruff_cache .pytest_cache .hypothesis
