#!/usr/bin/env bash
# Refuses a change of proto/ that would break a client of the Host API, compared with the
# newest commit on main that is not part of the change.
set -euo pipefail
buf=$1

base=$(git merge-base HEAD origin/main 2>/dev/null || true)
# On main itself, and in a clone without a remote branch, compare with the parent.
if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
	base=$(git rev-parse --verify --quiet 'HEAD^' || true)
fi
if [ -z "$base" ] || ! git cat-file -e "$base:buf.yaml" 2>/dev/null; then
	echo "breaking: nothing to compare with (no earlier commit has a contract)"
	exit 0
fi
"$buf" breaking proto --against ".git#ref=$base,subdir=proto"
