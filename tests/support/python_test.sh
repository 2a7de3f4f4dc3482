#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a Python test in the virtual environment of tests/requirements.txt:  python_test.sh SCRIPT ARGUMENT...
# Exit 77 with the reason where there is none. BATHYS_PYTHON names another interpreter that has the packages.
set -euo pipefail
environment=${BATHYS_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/bathys}/python
wanted=$(dirname "${BASH_SOURCE[0]}")/../requirements.txt
if [ -z "${BATHYS_PYTHON:-}" ]; then
  if ! cmp -s "$wanted" "$environment/requirements.txt"; then
    echo "skipped: $environment does not have the packages of tests/requirements.txt; tests/run.sh installs them where a package registry is in reach"
    exit 77
  fi
  BATHYS_PYTHON=$environment/bin/python
fi
exec "$BATHYS_PYTHON" "$@"
