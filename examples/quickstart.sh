#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 to a plan: installs what is missing, builds, and plans the training of
# Llama-2-7B on two nodes of eight A100-80GB (examples/llama2_7b).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/packages.sh build
cmake --preset release --log-level=WARNING -DMESHPLAN_TESTS=OFF
cmake --build --preset release --target meshplan --parallel "$(nproc)"

# The example runs in a copy of its folder, where it may write.
PATH="$PWD/build/release/apps:$PATH"
rm -rf build/quickstart
cp -r examples/llama2_7b build/quickstart
cd build/quickstart
sed 's/^/$ /' cmd
echo
sh -e cmd
echo
echo "The graph and the whole plan are in build/quickstart: graph.json, plan.json."
