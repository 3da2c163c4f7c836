#!/bin/sh
# Installs the wheel into a fresh environment and builds with it from a folder without the sources.
# PYTHON: the interpreter of an environment that has uv and pip.
set -eu
wheel=$(realpath "$1")
samples=$(realpath sample_data)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$PYTHON" -m venv --without-pip "$folder/venv"
# With all that it asks for from uv, then itself from pip: both must take it.
"$PYTHON" -m uv pip install --quiet --python "$folder/venv/bin/python" "$wheel" \
    || "$PYTHON" -m pip --quiet --python "$folder/venv/bin/python" install --no-compile "$wheel"
"$PYTHON" -m pip --quiet --python "$folder/venv/bin/python" install --no-deps --force-reinstall "$wheel"
cd "$folder"
"$folder/venv/bin/pipeline" --version
"$folder/venv/bin/pipeline" run prm --model qwen2-1.5b "$samples/prm/math_shepherd.jsonl" -o build --quiet
"$folder/venv/bin/python" - <<'PY'
import importlib.util
import json
import pathlib

import pyarrow as pa

assert importlib.util.find_spec("torch") is None, "the installed program brought torch along"
manifest = json.loads(pathlib.Path("build/manifest.json").read_text())
assert manifest["examples"]["kept"] == 14, manifest["examples"]
shard = manifest["splits"]["train"]["shards"][0]["path"]
rows = pa.ipc.open_stream(pathlib.Path("build", shard).read_bytes()).read_all()
assert rows.num_rows == manifest["splits"]["train"]["rows"]
print("wheel: 1 passed, 0 failed")
PY
