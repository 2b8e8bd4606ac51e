#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds with sanitizers and audits, and runs every test.
# Usage: tests/run.sh [ctest options, e.g. -R graph]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/packages.sh test
cmake --preset dev --log-level=WARNING
cmake --build --preset dev --parallel "$(nproc)"
ctest --preset dev "$@"
