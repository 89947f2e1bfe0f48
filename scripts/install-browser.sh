#!/usr/bin/env bash
# Installs Chromium for the tests of the report page, where that is possible. Where it is not, those tests are skipped and say so.
set -euo pipefail

if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
  exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  if apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; }; then
    exit 0
  fi
fi
echo "No browser, and none could be installed: the tests of the report page in a browser will be skipped." >&2
