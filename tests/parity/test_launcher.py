"""pipeline-openrlhf over OpenRLHF's own programs, trained to the end."""

import itertools
import os
import re
import shlex
import sys
from pathlib import Path
from statistics import mean

import pytest
import transformers
from parity.releases import peer_folder
from parity.tiny import tiny
from support import ROOT, SAMPLES, model_record, program, started, sweep

from pipeline import exports
from pipeline.builder.launch import check_version, split_arguments
from stages.errors import UsageError

FLASH_ATTENTION = "flash-attn-2.8.3.post2"
WITHOUT_GPU = Path(__file__).with_name("without_gpu.py")
SOURCE = {"sft": "sft/chat.jsonl", "rm": "rm/pairs.jsonl", "prm": "prm/math_shepherd.jsonl"}
OF_0_11_2 = "--ds.zero_stage 0 --train.max_epochs 16 --lr_warmup_ratio 0 --train.batch_size 4"
OF_0_9_5 = "--zero_stage 0 --max_epochs 25 --learning_rate 3e-2"
LEARNS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


def _program(path: Path, *words: object) -> None:
    program(path, f'exec {shlex.join(map(str, words))} "$@"')


@sweep(2)
@pytest.mark.parametrize(
    ("version", "task", "layout", "rows", "options"),
    [
        ("0.11.2", "sft", "packed", 99, f"{OF_0_11_2} --adam.lr 1e-1"),
        ("0.11.2", "rm", "ragged", 99, f"{OF_0_11_2} --adam.lr 1e-2"),
        ("0.9.5", "prm", "packed", 4, OF_0_9_5),
        ("0.9.5", "prm", "padded", 4, OF_0_9_5),
    ],
)
def test_the_command_of_a_build_trains(pipeline, tmp_path, version, task, layout, rows, options):
    """The launch script as it was written, deepspeed's launcher and engine, and OpenRLHF's program
    (``--packing_samples`` but for padded rows), in the spelling of the version that it finds: the
    loss falls, and the trained model is saved. Without a GPU it goes all the way with what
    ``without_gpu.py`` names in the place of one; unaided, it ends at OpenRLHF's first line that
    names a device (``torch.cuda.set_device``)."""
    lines = (SAMPLES / SOURCE[task]).read_bytes().splitlines(keepends=True)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(lines[:rows]))
    command = ("run", task, "rows.jsonl", "--model", "qwen2-1.5b", "-o", "build")
    ran = pipeline(*command, "--max-length", 512, "--for", "openrlhf", "--layout", layout).ended()
    assert "sh build/launch/openrlhf.sh MODEL_DIR" in ran.err
    transformers.set_seed(0)
    tiny("CausalLM", **LEARNS).save_pretrained(tmp_path / "tiny")
    pipeline("overlay", "tiny", "-o", "model", "--build", "build").ended()
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin" / "pipeline-openrlhf", sys.executable, WITHOUT_GPU)
    deepspeed = Path(sys.executable).parent / "deepspeed"
    # any port: two of these may run at once
    _program(tmp_path / "bin" / "deepspeed", sys.executable, deepspeed, "--master_port", 0)
    script = tmp_path / "build" / "launch" / "openrlhf.sh"
    folders = [peer_folder(f"openrlhf-{version}"), peer_folder(FLASH_ATTENTION), ROOT]
    variables = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(map(str, folders)),
        "DS_ACCELERATOR": "cpu",
    }
    done = started("sh", script, "model", *options.split(), folder=tmp_path, env=variables).ended()
    said = done.out + done.err
    losses = [float(loss) for loss, _ in itertools.groupby(re.findall(r"loss=([0-9.]+)", said))]
    assert mean(losses[-2:]) < mean(losses[:2]) / 2, losses  # of packs that take turns
    assert list((tmp_path / "ckpt").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("task", "version"),
    [
        (task, version)
        for task in ("sft", "rm", "prm")
        for version in ("0.7.1", "0.7.4", "0.9.5", "0.11.2")
        # these have no process reward trainer for our builds
        if not (task == "prm" and version in ("0.7.1", "0.11.2"))
    ],
)
@pytest.mark.parametrize("trainer", ["openrlhf", "openrlhf-text"])
def test_every_version_knows_the_options_of_its_spelling(version, trainer, task, tmp_path):
    """What a launch script passes on, with a test split and margins, its program declares."""
    model = model_record(step_token="<s>", good_token="+", bad_token="-")
    known = exports.ExportFacts(task, "ragged", 512, model, ("margin",), ("train", "test"), rows=40)
    export = exports.load(trainer)
    scripts = {task: export.launch(known)}
    if task == "rm" and trainer == "openrlhf":
        scripts["dpo"] = export.files(known)["openrlhf-dpo.sh"]
    for starts, text in scripts.items():
        (tmp_path / "launch").mkdir(exist_ok=True)
        (tmp_path / "launch" / "it.sh").write_text(text)
        _program(tmp_path / "deepspeed", "printf", "%s\n")
        variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OPENRLHF_VERSION": version}
        done = started("sh", tmp_path / "launch" / "it.sh", "MODEL", env=variables).ended()
        given = {word for word in done.out.splitlines() if re.match("--[a-z]", word)}
        cli = peer_folder(f"openrlhf-{version}") / "openrlhf" / "cli" / f"train_{starts}.py"
        taken = set(re.findall(r'add_argument\(\s*"(--[a-z_.]+)"', cli.read_text()))
        assert given - {"--no_python", "--module"} <= taken
        assert len(given) > 6


@pytest.mark.parametrize(
    ("task", "version", "says"),
    [
        ("prm", (0, 11, 2), "no trainer for prm"),
        ("prm", (0, 7, 3), "in a different form from 0.7.4"),
        ("sft", (0, 7, 0), "in a different form from 0.7.1"),
    ],
)
def test_versions_that_cannot_work_are_refused(task, version, says):
    """Before anything of theirs is imported."""
    with pytest.raises(UsageError, match=says):
        check_version(task, version)
    for good in ((0, 7, 4), (0, 9, 5)):
        check_version("prm", good)
    for good in ((0, 7, 1), (0, 11, 2)):
        check_version("sft", good)


def test_launchers_put_their_own_options_in_front():
    """deepspeed's --local_rank comes before the task, which is taken out of the middle."""
    task, rest = split_arguments(["--local_rank=3", "rm", "--data.dataset", "x"])
    assert (task, rest) == ("rm", ["--local_rank=3", "--data.dataset", "x"])
    with pytest.raises(UsageError, match="No task is named"):
        split_arguments(["--local_rank=3", "x", "rm"])
