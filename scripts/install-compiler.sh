#!/usr/bin/env bash
# Installs a C compiler, which the tests build their failing disk with (tests/faults/faulty_disk.c), where that is possible.
set -euo pipefail

if command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null; then
  exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  if apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null 2>&1; }; then
    exit 0
  fi
fi
echo "No C compiler, and none could be installed: the tests below tests/faults will fail. Install gcc or clang." >&2
