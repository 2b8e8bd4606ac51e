#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep in N parts at the same time with GNU parallel, joined at the end.
# Usage: gnu_parallel.sh N FOLDER GRAPH [options of meshplan whatif]
# e.g.   gnu_parallel.sh 16 parts graph.json --cluster dgx-h100 --devices 8..1024
# On several machines: PARALLEL_OPTIONS="--sshloginfile hosts --workdir ." (FOLDER on a shared
# disk). Without GNU parallel, RUN_PART="sh -c" runs the parts one after the other.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '3,7s/^# //p' "$0" >&2
  exit 2
fi
count=$1 folder=$2
shift 2
mkdir -p "$folder"
format=() sweep=()
while [ $# -gt 0 ]; do # how to print is for the join
  case $1 in
    --format | --csv | --plot | -o) format+=("$1" "$2") && shift 2 ;;
    *) sweep+=("$1") && shift ;;
  esac
done
for ((i = 0; i < count; ++i)); do
  printf '%q ' meshplan whatif "${sweep[@]}" --quiet --threads 1 \
    --shard "$i/$count" -o "$folder/part-$i.json"
  echo
done >"$folder/commands"
if [ -n "${RUN_PART:-}" ]; then
  while read -r command; do $RUN_PART "$command" </dev/null; done <"$folder/commands"
else
  # shellcheck disable=SC2086 # several words
  parallel --halt soon,fail=1 ${PARALLEL_OPTIONS:-} <"$folder/commands"
fi
parts=()
for ((i = 0; i < count; ++i)); do parts+=("$folder/part-$i.json"); done
exec meshplan whatif --merge "${parts[@]}" ${format[@]+"${format[@]}"}
