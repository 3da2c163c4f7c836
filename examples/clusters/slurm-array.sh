#!/bin/bash
# bash slurm-array.sh RECIPE.toml RANKS, in a folder that all machines share: parts, shards and commit
# as three jobs, each after the one before. A rank that failed is run again alone, with
#     sbatch --array=3 --wrap "pipeline parts RECIPE.toml --num-shards RANKS"
# (commit names it), and then bash slurm-array.sh again: what is made already is not made again.
set -eu
recipe="$1"
ranks="${2:-8}"
last=$((ranks - 1))

# Parts and shards meet in the cache: it has to be on a disk that all machines share.
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$PWD/.cache}"
asked=(--parsable --requeue --kill-on-invalid-dep=yes --open-mode=append)
asked+=(--cpus-per-task="${CPUS:-1}" --mem-per-cpu="${MEMORY:-2G}")

# The rank is SLURM_ARRAY_TASK_ID, which Slurm sets.
parts=$(sbatch "${asked[@]}" --job-name=parts --array="0-$last" --output=parts-%a.log \
    --wrap "pipeline parts '$recipe' --num-shards $ranks")
shards=$(sbatch "${asked[@]}" --job-name=shards --array="0-$last" --output=shards-%a.log \
    --dependency="afterok:$parts" --wrap "pipeline shards '$recipe' --num-shards $ranks")
commit=$(sbatch "${asked[@]}" --job-name=commit --output=commit.log \
    --dependency="afterok:$shards" --wrap "pipeline commit '$recipe'")
echo "$parts $shards $commit"
