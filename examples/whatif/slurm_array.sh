#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One part of a sweep, as a task of a Slurm array. Usage, from where everything is to be found:
#   job=$(sbatch --parsable --array=0-7 slurm_array.sh FOLDER GRAPH [options of meshplan whatif])
#   sbatch --dependency=afterok:$job --wrap "meshplan whatif --merge FOLDER/part-*.json --plot scaling.svg"
# The number of tasks is the number of parts. A task that failed can be run again alone:
# sbatch --array=3 needs SLURM_ARRAY_TASK_COUNT=8 in its environment then.
#SBATCH --job-name=meshplan-whatif
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '3,7s/^# //p' "$0" >&2
  exit 2
fi
folder=$1
shift
mkdir -p "$folder"
meshplan whatif "$@" --quiet --threads "${SLURM_CPUS_PER_TASK:-0}" \
  --shard "${SLURM_ARRAY_TASK_ID:?}/${SLURM_ARRAY_TASK_COUNT:?}" \
  -o "$folder/part-$SLURM_ARRAY_TASK_ID.json"
