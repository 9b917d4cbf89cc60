#!/usr/bin/env bash
# Installs the CUDA compiler that builds kernels/ into .cuda/ (ignored by git): 109 MB from PyPI, 277 MB on disk.
# No GPU, driver or system toolkit is needed; nvcc asks for a host compiler (gcc or clang).
#
# Usage: scripts/cuda.sh         does nothing if what is there is what is pinned
#
# All versions are pinned, and pip must not resolve anything by itself (--no-deps): nvcc's own requirements are unpinned
# and would bring another release's nvvm and headers. The kernels' bytes depend on these versions, so a change here is a
# change of every committed kernel. FLASHDECODE_CUDA names another folder, PYTHON another interpreter.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${FLASHDECODE_CUDA:-$root/.cuda}
python=${PYTHON:-python3}

wheels=(
  nvidia-cuda-nvcc==13.0.88        # nvcc, ptxas, cudafe++, fatbinary
  nvidia-nvvm==13.0.88             # cicc, libdevice
  nvidia-cuda-crt==13.0.88         # crt/*.h, without which nothing compiles
  nvidia-cuda-runtime==13.0.96     # cuda_runtime.h, which nvcc includes by itself
  nvidia-cuda-cuobjdump==13.2.86   # reads registers, stack and shared memory from the result; no 13.0 of these two exists
  nvidia-cuda-nvdisasm==13.2.86    # SASS, for people
)

die() { printf 'cuda: %s\n' "$*" >&2; exit 1; }

stamp="$dest/installed"
want=$(printf '%s\n' "${wheels[@]}")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$dest/nvidia/cu13/bin/nvcc" ]; then exit 0; fi

command -v "$python" >/dev/null || die "no $python on the path: install Python 3.8 or newer"
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip: install it (Debian: apt-get install python3-pip)"

# Installed beside the final place and moved there whole: an interrupted run leaves the old state.
mkdir -p "$(dirname "$dest")"
work=$(mktemp -d "$dest.XXXXXX") || die "cannot write beside $dest"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
"$python" -m pip install --quiet --disable-pip-version-check --no-input --root-user-action=ignore --no-compile --no-deps --only-binary :all: \
  --target "$work/new" "${wheels[@]}" || die "pip could not install ${wheels[*]}"
"$work/new/nvidia/cu13/bin/nvcc" --version | grep -q 'V13.0.88' || die "the installed nvcc is not 13.0.88"
printf '%s\n' "$want" >"$work/new/installed"
rm -rf "$dest"
mv "$work/new" "$dest"
printf 'cuda: installed %s in %s\n' "$("$dest/nvidia/cu13/bin/nvcc" --version | grep -o 'V[0-9.]*')" "$dest" >&2
