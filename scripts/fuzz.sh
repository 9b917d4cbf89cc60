#!/usr/bin/env bash
# Runs every fuzz target for a number of iterations, which unlike a time means the same on every machine.
#
# Usage: scripts/fuzz.sh [2000x] [package]...      (default: all packages)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
iterations=${1:-2000x}
[ $# -le 1 ] && set -- "$iterations" ./...
shift

targets=0
for package in $("$go" list "$@"); do
  for target in $("$go" test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
    echo "fuzz $package $target"
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$iterations" "$package"
    targets=$((targets + 1))
  done
done
[ "$targets" -gt 0 ] || { echo "fuzz: no target found" >&2; exit 1; }
echo "fuzz: $targets targets"
