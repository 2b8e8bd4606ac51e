#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 to a plan: installs what is missing, builds, and plans the training of
# Llama-2-7B on two nodes of eight A100-80GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/packages.sh build
cmake --preset release --log-level=WARNING
cmake --build --preset release --target meshplan --parallel "$(nproc)"

mkdir -p build/quickstart
show_and_run() {
  echo "\$ $*"
  "build/release/apps/$@"
}
# One optimizer step of 64 sequences of 4,096 tokens ...
show_and_run meshplan import hf examples/llama2_7b/config.json --batch 64 --seq 4096 \
  -o build/quickstart/llama2_7b.json
# ... on 16 devices; the mesh is searched too.
show_and_run meshplan plan build/quickstart/llama2_7b.json --cluster dgx-a100-80g --devices 16 \
  --mesh auto --microbatches 2 -o build/quickstart/plan.json
echo
echo "The whole plan is in build/quickstart/plan.json."
