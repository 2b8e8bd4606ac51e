#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans a changed graph with the options of the plan in use and says whether that made it worse.
# Usage: plan_regression.sh PLAN GRAPH CLUSTER FOLDER [options of meshplan diff]
# e.g.   plan_regression.sh plans/train.json graph.json dgx-a100-80g report --max-slowdown 1%
# FOLDER gets new_plan.json, diff.txt, diff.md (a comment), diff.json and diff.xml (JUnit).
# The exit code is that of meshplan diff: 0 nothing is worse than allowed, 5 something is.
set -euo pipefail
if [ $# -lt 4 ]; then
  sed -n '3,7s/^# //p' "$0" >&2
  exit 2
fi
plan=$1 graph=$2 cluster=$3 folder=$4
shift 4
mkdir -p "$folder"

code=0
meshplan diff --replan "$plan" --graph "$graph" --cluster "$cluster" --quiet "$@" \
  --new-plan "$folder/new_plan.json" --junit "$folder/diff.xml" -o "$folder/diff.txt" || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 5 ]; then
  exit "$code" # there is nothing to compare: the message says why
fi

# the same comparison for people and for programs; both plans are there now
compare() {
  meshplan diff "$plan" "$folder/new_plan.json" --graph "$graph" --cluster "$cluster" "$@" ||
    [ $? -eq 5 ]
}
compare --format markdown -o "$folder/diff.md" "$@"
compare --format json -o "$folder/diff.json" "$@"

cat "$folder/diff.txt"
exit "$code"
