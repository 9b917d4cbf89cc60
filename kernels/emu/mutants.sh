#!/usr/bin/env bash
# Plants every MUTANT(name) of the kernel sources, one at a time, in the test programs that include it. Each has to make a case of one of
# them fail. Usage: emu/mutants.sh PROGRAM...   (from kernels/, as the Makefile does)
set -euo pipefail

names() { cat "$@" | grep -oE 'MUTANT\(\w+\)' | sed -E 's/MUTANT\((\w+)\)/\1/' | grep -vx name | sort -u; }   # name: the macro's parameter

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
all=$(names $(find attention bench prim emu -name '*.cuh' -o -name '*.cu' -o -name '*.h' -o -name '*_emu.cc')) || { echo 'mutants: no MUTANT(name) in any source' >&2; exit 1; }

# The dependency file of a program lists the sources in it.
one() {
  local program=$1 sources mutants
  sources=$(sed -E 's/\\$//; s/^[^ ]*://' "$program.d" | tr ' ' '\n' | grep -vE '^(/|$)' | sort -u | while read -r f; do [ ! -f "$f" ] || echo "$f"; done)
  mutants=$(names $sources || true)
  [ -z "$mutants" ] || "$program" -mutants $mutants >"$work/$(basename "$program")" || true
}
export -f one names
export work
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'set -euo pipefail; one {}'

cat "$work"/* 2>/dev/null | grep -E '^(caught|FAIL)' || true
survivors=0
for m in $all; do
  grep -qs "^caught $m " "$work"/* && continue
  survivors=$((survivors + 1))
  grep -hs "^SURVIVED $m\b" "$work"/* || echo "SURVIVED $m: no test program includes it"
done
echo "mutants: $(wc -w <<<"$all") planted, $survivors survived"
[ $survivors = 0 ]
