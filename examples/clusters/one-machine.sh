#!/bin/bash
# bash one-machine.sh RECIPE.toml: one machine of many cores. A build uses all of them by itself; this
# only says where its files go.
set -eu

# Parts take about as much room as the build, and are written and read once: a fast disk of the
# machine is the place for them.
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-${TMPDIR:-/var/tmp}/posttrain}"

# Less than all cores, where other programs share the machine:  --workers 48
# Shards and manifest, straight into a store:                   -o s3://bucket/training-data
exec pipeline build "$1" --quiet
