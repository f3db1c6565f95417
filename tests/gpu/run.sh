#!/usr/bin/env bash
# Everything that needs an accelerator, in under eight minutes: tests/gpu/run.sh [FOLDER]
#
# Results go to FOLDER (default $OUT, else bench-results/gpu). PYTHON= names the interpreter.
# Without network: put wheels into .whl/ (they are installed into a temporary folder), and set
# FOURFOLD_TOKENIZER to a folder with the tokenizer where the packaged model is not installed.
set -uo pipefail
cd "$(dirname "$0")/../.."

OUT="${1:-${OUT:-bench-results/gpu}}"
PYTHON="${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3)}"
mkdir -p "$OUT"
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=true
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

if compgen -G '.whl/*.whl' >/dev/null; then
  site="$(mktemp -d)"
  trap 'rm -rf "$site"' EXIT
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl || exit 1
  export PYTHONPATH="$site:$PYTHONPATH"
fi

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || exit 1
failed=0
if "$PYTHON" -c 'import pytest, pytest_asyncio, pytest_timeout' 2>/dev/null; then
  timeout 120 "$PYTHON" -m pytest -q -m gpu tests/gpu 2>&1 | tee "$OUT/pytest.log"
  failed=$((failed + PIPESTATUS[0]))
else
  echo "pytest is not installed here: only the measurements run"
fi
timeout 330 "$PYTHON" -m tests.gpu.rerank --limit 240 --json "$OUT/rerank.json" 2>&1 | tee "$OUT/rerank.log"
failed=$((failed + PIPESTATUS[0]))
exit "$((failed != 0))"
