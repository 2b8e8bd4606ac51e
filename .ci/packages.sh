#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building (build), testing (test) or checking (check) needs and
# that are not there yet. With nothing missing, apt is not touched and no rights are needed.
# Usage: packages.sh build|test|check
set -euo pipefail

need="${1:-build}"
missing=()

# A program may come from anywhere on the PATH.
need_program() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
# A header may lie wherever compilers look without being told.
need_header() {
  local folder
  for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
    if [ -e "$folder/$1" ]; then return; fi
  done
  missing+=("$2")
}
# The library of -fsanitize=fuzzer lies where the compiler keeps its own.
need_fuzzer() {
  local own
  own="$(clang++ -print-resource-dir 2>/dev/null || true)"
  if ! compgen -G "$own/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null; then missing+=(libclang-rt-14-dev); fi
}

need_program cmake cmake
need_program c++ g++
need_program ninja ninja-build
need_header CLI/CLI.hpp libcli11-dev
need_header nlohmann/json.hpp nlohmann-json3-dev
need_header eigen3/Eigen/Core libeigen3-dev
need_header spdlog/spdlog.h libspdlog-dev
need_header zlib.h zlib1g-dev
if [ "$need" != build ]; then
  need_header catch2 catch2
  need_program cbc coinor-cbc # one test and a benchmark; where it is missing they compare nothing
  need_program dot graphviz   # renders exported drawings; where it is missing they are only written
  need_program python3 python3 # runs exported Python; where it is missing it is only written
  need_program zsh zsh         # tries its completion; where it is missing it is only written
  need_program fish fish       # the same
fi
if [ "$need" = check ]; then
  need_program clang++ clang
  need_program clang-format clang-format
  need_program clang-tidy clang-tidy
  need_fuzzer
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null 2>&1; then
  echo "error: these Debian packages, or their equals on this system, are needed: ${missing[*]}" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "error: packages are missing; as root, run this and then this script again:" >&2
  echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "Installing ${missing[*]}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! {
  apt-get update -q &&
    apt-get install -q -y --no-install-recommends "${missing[@]}"
} </dev/null >"$log" 2>&1; then
  cat "$log" >&2
  echo "error: apt-get could not install ${missing[*]}" >&2
  exit 1
fi
