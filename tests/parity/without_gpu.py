"""OpenRLHF's own programs on a machine without a GPU: what stands for one, and nothing else.

Run in the place of ``pipeline-openrlhf`` by deepspeed's own launcher. OpenRLHF, deepspeed, and
flash-attn's un-padding run as they were published. In their place stand the CPU for the device
that OpenRLHF names "cuda", torch's AdamW for the optimizer that is compiled for a GPU, gloo for
shared memory between ranks, products in float32 for those in bfloat16, which a processor without
such units does one number after another, and SDPA for flash-attn's kernels: given positions that
restart and no mask, it keeps documents apart as they do.
"""

import importlib
import importlib.util
import sys
import types
from typing import Any


def _enter(package: str) -> None:
    """A package whose modules can be imported, and whose ``__init__`` is not run."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(package)
    module = types.ModuleType(package)
    module.__path__ = list(spec.submodule_search_locations)
    module.__spec__ = spec
    sys.modules[package] = module


def _cpu_for_cuda() -> None:
    import torch
    from torch.distributed import device_mesh

    cuda: Any = torch.cuda
    cuda.set_device = lambda *_: None
    cuda.synchronize = lambda *_: None
    cuda.current_device = lambda: torch.device("cpu")
    of_device = device_mesh.init_device_mesh
    device_mesh.init_device_mesh = lambda _, *shape, **names: of_device("cpu", *shape, **names)


def _products_in_float32() -> None:
    import torch

    of_one_type = torch.nn.functional.linear

    def linear(rows: Any, weight: Any, bias: Any = None) -> Any:
        wide = of_one_type(rows.float(), weight.float(), None if bias is None else bias.float())
        return wide.to(rows.dtype)

    torch.nn.functional.linear = linear


def _no_compiled_kernels() -> None:
    import torch
    from transformers import PreTrainedModel

    chosen: Any = PreTrainedModel.get_correct_attn_implementation

    def without_flash(model: Any, asked: str | None, *rest: Any, **more: Any) -> Any:
        return chosen(model, "sdpa" if asked == "flash_attention_2" else asked, *rest, **more)

    PreTrainedModel.get_correct_attn_implementation = without_flash

    class FusedAdam(torch.optim.AdamW):
        def __init__(self, parameters: Any, adam_w_mode: bool = True, **options: Any) -> None:
            super().__init__(parameters, **options)

    importlib.import_module("deepspeed.ops.adam").FusedAdam = FusedAdam
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


if __name__ == "__main__":
    _enter("flash_attn")
    _cpu_for_cuda()
    _products_in_float32()
    _no_compiled_kernels()
    from pipeline.builder.launch import main

    main()
