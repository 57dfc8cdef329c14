#!/usr/bin/env bash
# Builds the Python client's wheel and installs it into DIR/site, as the tests that follow want it; no
# network. The google.rpc messages, which come from PyPI elsewhere, are made from the .proto files.
set -euo pipefail
out=${1:?usage: install_python_client.sh DIR}
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$out"
wheel=$("$root/tools/python_wheel" "$out/wheel")
"$PENSTOCK_GRPC_PYTHON3" -m pip install -q --no-deps --no-index --no-compile --target "$out/site" "$wheel"
"$PENSTOCK_PROTOC" -I"$PENSTOCK_GOOGLEAPIS" --python_out="$out/site" \
  google/rpc/status.proto google/rpc/error_details.proto
