#!/usr/bin/env bash
# Gets a newcomer from a fresh clone to a working MCP server for this directory: starts
# the daemon, registers the directory, proves a round trip over stdio, prints what to
# paste. Running it again changes nothing.
set -euo pipefail
compozy=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")

"$compozy" daemon start
"$compozy" workspace add . >/dev/null

# The same frames that a client sends: a handshake, then one call.
answers=$(
	printf '%s\n' \
		'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"make-run","version":"1"}}}' \
		'{"jsonrpc":"2.0","method":"notifications/initialized"}' \
		'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}' \
		'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"compozy_host__tasks__summary","arguments":{}}}' |
		"$compozy" mcp serve --workspace .
)
if ! grep -q '"structuredContent":{' <<<"$answers" || grep -q '"isError":true' <<<"$answers"; then
	printf "The MCP round trip failed. The last answer was:\n%s\n" "$(tail -n 1 <<<"$answers")" >&2
	exit 1
fi
tools=$(grep -o '"name":"compozy_host__' <<<"$answers" | wc -l)
printf '\nAn MCP client listed %d tools and called one of them. Paste one of these into yours:\n\n' "$tools"
"$compozy" mcp config --all --workspace .
printf '\nTry it without a client:  %s task create "My first task"  and  %s task list\n' "$1" "$1"
