#!/usr/bin/env bash
# Drives the relay with real MCP clients. Their versions are pinned in package.json. The
# homes are thrown away, and nothing leaves this machine but the installation.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
compozy=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")

if [ ! -e "$here/node_modules/.package-lock.json" ] || [ "$here/package-lock.json" -nt "$here/node_modules/.package-lock.json" ]; then
	# Not npm ci: it refuses the lock file for an optional dependency of another platform that
	# the registry does not have.
	if ! npm install --prefix "$here" --no-save --ignore-scripts --no-audit --no-fund --loglevel error; then
		if [ -n "${CI:-}" ]; then
			echo "clients: npm could not install the MCP clients" >&2
			exit 1
		fi
		echo "clients: NOT RUN: npm could not install the MCP clients" >&2
		exit 0
	fi
	touch "$here/node_modules/.package-lock.json"
fi

work=$(mktemp -d)
# The agent does what its prompts say; it is the one that the tests of internal/agent run.
(cd "$here" && go test -c -o "$work/agent" ../../internal/agent)
export COMPOZY_HOME=$work/home HOME=$work/user
mkdir -m 700 "$HOME"
trap 'kill $(jobs -p) 2>/dev/null; "$compozy" daemon stop >/dev/null 2>&1; rm -rf "$work"' EXIT
COMPOZY_MCP_SERVE_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export COMPOZY_MCP_SERVE_TOKEN

# Clients call as fast as they can.
mkdir -m 700 "$COMPOZY_HOME"
cat >"$COMPOZY_HOME/config.toml" <<EOF
version = 1
[limits]
writes_per_second = 1000
writes_burst = 1000
[sessions]
agent = "scripted"
[agents.scripted]
command = ["$work/agent", "scripted-agent"]
EOF
export GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global user.name Ada && git config --global user.email ada@example.com
"$compozy" daemon start >/dev/null

# serve prints the command that serves a new workspace with every tool: a repository with
# a commit, and a remote on this machine.
serve() {
	git init -q --bare "$work/$1.git"
	git init -q "$work/$1"
	git -C "$work/$1" commit -q --allow-empty -m "begin"
	git -C "$work/$1" remote add origin "$work/$1.git"
	"$compozy" workspace add "$work/$1" >/dev/null
	printf '%s\n' "$compozy" mcp serve --workspace "$work/$1" --tools all --allow-destructive
}

# serve_http serves a new workspace over HTTP, and sets url.
serve_http() {
	local command
	mapfile -t command < <(serve "$1")
	"${command[@]}" --transport http --listen 127.0.0.1:0 2>"$work/$1.served" &
	until url=$(grep -o 'http://.*/mcp$' "$work/$1.served"); do
		kill -0 $! 2>/dev/null || { cat "$work/$1.served" >&2; return 1; }
		sleep 0.1
	done
}

fail=0
report() { # name, exit status, output
	if [ "$2" = 0 ]; then
		printf 'ok    %-34s %s\n' "$1" "$3"
	else
		printf 'FAIL  %-34s %s\n' "$1" "$3"
		fail=1
	fi
}
try() { # name, command...
	local name=$1 out status=0
	shift
	out=$("$@" 2>"$work/stderr") || status=$?
	[ "$status" = 0 ] || out="exit $status: $(tail -c 2000 <<<"$out") $(tail -c 2000 "$work/stderr")"
	report "$name" "$status" "$out"
}

# Two of the clients need a newer Node than some machines have.
node=$(compgen -G "$here/node_modules/node-*/bin/node" | head -n 1 || true)
[ -n "$node" ] || node=node

mapfile -t command < <(serve sdk1)
try "TypeScript SDK 1" timeout 120 "$node" "$here/sdk1.mjs" "${command[@]}"
mapfile -t command < <(serve sdk2)
try "TypeScript SDK 2" timeout 120 "$node" "$here/sdk2.mjs" "${command[@]}"
serve_http http1
try "TypeScript SDK 1, HTTP" timeout 120 "$node" "$here/sdk1.mjs" "$url"
serve_http http2
try "TypeScript SDK 2, HTTP" timeout 120 "$node" "$here/sdk2.mjs" "$url"

inspector() { # era, where the relay is
	local era=$1
	shift
	timeout 60 "$node" "$here/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js" --cli \
		--protocol-era "$era" --method tools/list --strict --format json -q "$@" >"$work/list.json" &&
		"$node" -e 'console.log(JSON.parse(require("fs").readFileSync(process.argv[1])).result.tools.length + " tools, no finding")' "$work/list.json"
}
mapfile -t command < <(serve inspector)
for era in legacy modern; do
	try "Inspector, $era era" inspector "$era" -e "COMPOZY_HOME=$COMPOZY_HOME" -- "${command[@]}"
	try "Inspector, $era era, HTTP" inspector "$era" --transport http --server-url "$url" --header "Authorization: Bearer $COMPOZY_MCP_SERVE_TOKEN"
done

claude=$(compgen -G "$here/node_modules/@anthropic-ai/claude-code-*/claude" | head -n 1 || true)
connects() { # what is added, as claude mcp add takes it
	"$claude" mcp add --scope user compozy-workspace "$@" >&2
	(cd "$work/claude" && timeout 60 "$claude" mcp list 2>&1) >"$work/list"
	"$claude" mcp remove --scope user compozy-workspace >&2
	grep 'compozy-workspace: .*Connected' "$work/list" | sed 's/: .* - / /'
}
mapfile -t command < <(serve claude)
try "Claude Code, mcp list" connects -- "${command[@]}"
try "Claude Code, mcp list, HTTP" connects --transport http --header 'Authorization: Bearer ${COMPOZY_MCP_SERVE_TOKEN}' -- "$url"
exit $fail
