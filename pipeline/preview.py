"""What would be built: resolved tokens, detected formats, stages and splits. Writes nothing."""

from __future__ import annotations

from pipeline.config import Config
from pipeline.inputs import scan
from pipeline.recipe import resolve_recipe


def preview(config: Config) -> str:
    """A page of text.

    Raises:
        PipelineError: what a build would raise before its first row.
    """
    inputs = scan(config.data)
    recipe = resolve_recipe(config, inputs)
    model = recipe.model
    longest = recipe.config.max_length
    lines = [
        f"task      {config.task}, {recipe.config.layout}, at most {longest} tokens",
        f"model     {model.profile.name} (tokenizer: {recipe.tokenizer_source})",
        f"encoder   {recipe.backend}",
    ]
    lines += [f"probe     {name}: {detail}" for name, detail in model.probes.items()]
    for source, name, why in zip(inputs, recipe.formats, recipe.evidence, strict=True):
        lines.append(
            f"input     {source.name}: {name} ({why}), {source.bytes} bytes, "
            f"{len(source.splits)} splits"
        )
    door = recipe.normalize(recipe.formats[0])
    lines.append(f"stage     normalize -> {', '.join(door.writes)}")
    lines += [
        f"stage     {stage.name}: {', '.join(stage.reads)} -> {', '.join(stage.writes) or 'judged'}"
        for stage in recipe.stages(recipe.formats[0])
    ]
    return "\n".join([*lines, f"output    {config.output}"])
