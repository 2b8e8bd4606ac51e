#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the release build into a folder of its own, runs the program from there and builds a
# project against the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cmake --preset release --log-level=WARNING
cmake --build --preset release --target meshplan --parallel "$(nproc)"
cmake --install build/release --prefix "$folder/usr" >"$folder/log"

# A cluster that exists in the installed configs only: finding it proves where configs come from.
clusters="$folder/usr/share/meshplan/configs/clusters"
sed 's/"dgx-a100-80g"/"installed-only"/' "$clusters/dgx-a100-80g.json" >"$clusters/installed-only.json"
cd "$folder"
mkdir elsewhere
mv usr elsewhere/usr  # the package and the program may be moved
program="$folder/elsewhere/usr/bin/meshplan"
"$program" --version
test -s elsewhere/usr/share/man/man1/meshplan.1
test -s elsewhere/usr/share/bash-completion/completions/meshplan
"$program" import hf elsewhere/usr/share/meshplan/configs/models/smollm2_135m.json \
  --batch 16 --seq 1024 -o graph.json
"$program" plan graph.json --cluster installed-only --devices 8 -o plan.json >summary.txt
grep -q '"meshplan.plan/1.0"' plan.json

cmake -S "$OLDPWD/tests/consumer" -B consumer -G Ninja --log-level=WARNING \
  -DCMAKE_PREFIX_PATH="$folder/elsewhere/usr"
cmake --build consumer
consumer/consumer graph.json
