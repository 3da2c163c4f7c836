#!/bin/sh
# Installs the wheel into a fresh environment and builds with it from a folder without the sources.
set -eu
wheel=$(realpath "$1")
samples=$(realpath sample_data)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --no-compile "$wheel"
if ! command -v uv >/dev/null; then
    "$folder/venv/bin/python" -m pip install --quiet --target "$folder/tools" uv || true
    PATH="$folder/tools/bin:$PATH"
fi
if command -v uv >/dev/null; then
    uv venv --quiet --python "${PYTHON:-python3}" "$folder/uv"
    uv pip install --quiet --python "$folder/uv/bin/python" --no-deps "$wheel"
    "$folder/uv/bin/python" -c 'import posttrain_pipeline as pp; assert pp.__version__'
    echo "wheel: uv installs it"
else
    echo "wheel: uv cannot be had here, so its installation is not tested" >&2
fi
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
