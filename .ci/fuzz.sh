#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every reader. Without options: a run that is the same every time (fixed seed, fixed number
# of inputs per reader), about two minutes on two cores; for continuous integration.
# Usage: fuzz.sh [--seconds N [--seed S]] [READER...]
#   --seconds N   runs each reader for N seconds instead, from another seed every time
#   READER        graph, cluster, constraints, plan, whatif, cost_graph, contest, rule, hf; all by default
# An input that breaks a reader is kept in build/fuzz/found/READER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"

# reader, inputs of the reproducible run, longest input in bytes
table="graph 50000 16384
cluster 25000 8192
constraints 240000 4096
plan 25000 16384
whatif 30000 8192
cost_graph 120000 16384
contest 120000 4096
rule 800000 1024
hf 60000 4096"

seconds=""
seed=1
readers=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds)
      seconds="$2"
      seed="$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')"
      shift 2
      ;;
    --seed)
      seed="$2"
      shift 2
      ;;
    *)
      grep -q "^$1 " <<<"$table" || {
        echo "error: there is no reader \"$1\"; known: $(cut -d' ' -f1 <<<"$table" | tr '\n' ' ')" >&2
        exit 2
      }
      readers+=("$1")
      shift
      ;;
  esac
done
if [ ${#readers[@]} -eq 0 ]; then mapfile -t readers < <(cut -d' ' -f1 <<<"$table"); fi

cmake --preset fuzz --log-level=WARNING
cmake --build --preset fuzz --target fuzz_targets --parallel "$(nproc)"

# ---- The first inputs: examples, configurations, data of the tests, and plans made here.
seeds="$root/build/fuzz/seeds"
rm -rf "$seeds"
mkdir -p "$seeds"
for reader in $(cut -d' ' -f1 <<<"$table"); do
  mkdir "$seeds/$reader"
  if [ -d "tests/fuzz/seeds/$reader" ]; then cp "tests/fuzz/seeds/$reader"/* "$seeds/$reader"; fi
done
meshplan="$root/build/fuzz/apps/meshplan"
mlp="examples/mlp/graph.json"
export ASAN_OPTIONS=detect_leaks=0  # of the programs that make inputs; the targets look for leaks
cp "$mlp" "$seeds/graph/mlp.json"
for model in gpt2 mixtral_8x7b t5_base; do
  "$meshplan" import hf "configs/models/$model.json" --batch 4 --seq 32 --layers 1 --quiet -o "$seeds/graph/$model.json"
done
cp configs/clusters/*.json examples/tiny_llama/four_gpus.json "$seeds/cluster"
cp examples/mlp/tensor_parallel.json "$seeds/constraints"
cp configs/models/*.json "$seeds/hf"
for mesh in dp=8 dp=2,tp=4; do
  "$meshplan" plan "$mlp" --cluster dgx-a100-80g --devices 8 --mesh "$mesh" -o "$seeds/plan/$mesh.json" >/dev/null
done
"$meshplan" plan "$mlp" --cluster dgx-a100-80g --devices 8 --mesh tp=8 --constraints examples/mlp/tensor_parallel.json \
  -o "$seeds/plan/constrained.json" >/dev/null
"$meshplan" whatif "$mlp" --cluster dgx-a100-80g --devices 8,16 --memory 4200MiB,80GiB --network 1x,nvlink=0.5x --format json \
  -o "$seeds/whatif/sweep.json"
"$meshplan" whatif "$mlp" --cluster dgx-a100-80g --devices 8,16 --batch 32,64 --shard 1/2 -o "$seeds/whatif/part.json"
unset ASAN_OPTIONS
while IFS= read -r line; do
  number=$((${number:-0} + 1))
  printf '%b' "$line" >"$seeds/rule/$(printf '%03d' "$number")"
done <tests/fuzz/rules.txt

# ---- One process per reader, two at a time.
fuzz_one() {
  local reader="$1" runs="$2" longest="$3"
  local folder="$root/build/fuzz/found/$reader" log="$root/build/fuzz/$reader.log" budget
  mkdir -p "$folder"
  if [ -n "$seconds" ]; then
    budget=(-max_total_time="$seconds")
  else
    budget=(-runs="$runs" -max_total_time=240)
  fi
  # addresses that differ from run to run would change what counts as new
  if setarch "$(uname -m)" -R "build/fuzz/tests/fuzz/${reader}_fuzz" \
    -seed="$seed" "${budget[@]}" -max_len="$longest" -timeout=120 -rss_limit_mb=2048 -reload=0 -print_final_stats=1 \
    -dict=tests/fuzz/json.dict -artifact_prefix="$folder/" \
    -seed_inputs="$(find "$seeds/$reader" -type f | LC_ALL=C sort | paste -sd,)" >"$log" 2>&1; then
    awk -v reader="$reader" '
      $2 == "DONE" { for (i = 3; i < NF; ++i) { if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1) } }
      /stat::number_of_executed_units/ { units = $2 }
      /stat::average_exec_per_sec/ { rate = $2 }
      END { printf "%-12s %9d inputs, %6d a second, %6d edges, %6d features\n", reader, units, rate, cov, ft }' "$log"
  else
    echo "$reader: broken; the input is in $folder, what happened in $log:" >&2
    grep -vE '^#[0-9]+[[:space:]]' "$log" | tail -n 40 >&2
    return 1
  fi
}
export -f fuzz_one
export root seeds seed seconds

echo "seed $seed"
for reader in "${readers[@]}"; do grep "^$reader " <<<"$table"; done |
  xargs -P 2 -L 1 bash -c 'fuzz_one "$@"' fuzz
