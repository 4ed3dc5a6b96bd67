#!/usr/bin/env bash
# Runs real coding agents through sessions, by what an MCP client can call and nothing
# else: each by itself (story.mjs), and then three that trade work (offer.mjs): run.sh
# BIN/compozy [AGENT...]. Without names these are claude and codex; gemini,
# opencode and codex2 (the newer adapter of Codex) are there for a person who looks at one.
# Versions are pinned in package.json and more/package.json. The agents talk to a model
# stub; homes are thrown away, and nothing leaves this machine but the installation.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
compozy=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
[ $# -gt 0 ] || set -- claude codex

install() { # directory
	if [ -e "$1/node_modules/.package-lock.json" ] && [ ! "$1/package-lock.json" -nt "$1/node_modules/.package-lock.json" ]; then
		return
	fi
	# Not npm ci: it refuses a lock file for optional dependencies of other platforms.
	# Install scripts stay off: no agent here needs one.
	if ! npm install --prefix "$1" --no-save --ignore-scripts --no-audit --no-fund --loglevel error; then
		if [ -n "${CI:-}" ]; then
			echo "agents: npm could not install the agents" >&2
			exit 1
		fi
		echo "agents: NOT RUN: npm could not install the agents" >&2
		exit 0
	fi
	touch "$1/node_modules/.package-lock.json"
}
install "$here"
for agent in "$@"; do
	case $agent in
	claude | codex) ;;
	gemini | opencode | codex2) install "$here/more" ;;
	*)
		echo "agents: there is no recipe for $agent" >&2
		exit 2
		;;
	esac
done

# The agents want a newer Node than some machines have.
node=$(compgen -G "$here/node_modules/node-*/bin/node" | head -n 1 || true)
[ -n "$node" ] || node=$(command -v node)
program() { # the native program that npm installed for this platform
	compgen -G "$1" | head -n 1 || { echo "agents: no build for this platform: $1" >&2 && exit 1; }
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$here" && go build -o "$work/model" ./model) # before HOME changes, and with it Go's cache
# Codex refuses a home below TMPDIR.
export COMPOZY_HOME=$work/home HOME=$work/user TMPDIR=$work/tmp STUB_API_KEY=not-a-secret-at-all
mkdir -m 700 "$COMPOZY_HOME" "$HOME" "$TMPDIR"
model=
finish() {
	local status=$?
	if [ $status != 0 ]; then
		echo "--- the end of daemon.log" >&2
		tail -n 60 "$COMPOZY_HOME/logs/daemon.log" >&2 || true
		echo "--- the end of what the model was asked" >&2
		tail -n 20 "$work/model.log" >&2 || true
	fi
	"$compozy" daemon stop >/dev/null 2>&1 || true
	[ -z "$model" ] || kill "$model" 2>/dev/null || true
	# An agent that is being ended may still write.
	rm -rf "$work" 2>/dev/null || { sleep 1 && rm -rf "$work"; }
}
trap finish EXIT

"$work/model" >"$work/address" 2>"$work/model.log" &
model=$!
for _ in $(seq 100); do
	[ ! -s "$work/address" ] || break
	sleep 0.05
done
url=$(cat "$work/address")

# What each agent has to be told, so that it talks to the stub and to nobody else.
{
	cat <<-EOF
		version = 1
		[limits]
		writes_per_second = 1000
		writes_burst = 1000
	EOF
	for agent in "$@"; do
		case $agent in
		claude)
			# Without ENABLE_TOOL_SEARCH=false it hides MCP tools from the model at first.
			cat <<-EOF
				[agents.claude]
				command = ["$node", "$here/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"]
				[agents.claude.env]
				ANTHROPIC_BASE_URL = "$url"
				ANTHROPIC_API_KEY = "env:STUB_API_KEY"
				CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1"
				DISABLE_AUTOUPDATER = "1"
				DISABLE_ERROR_REPORTING = "1"
				DISABLE_TELEMETRY = "1"
				ENABLE_TOOL_SEARCH = "false"
			EOF
			;;
		codex | codex2)
			if [ "$agent" = codex ]; then
				command="\"$(program "$here/node_modules/@zed-industries/codex-acp-*/bin/codex-acp")\""
			else
				command="\"$node\", \"$here/more/node_modules/@agentclientprotocol/codex-acp/dist/index.js\""
			fi
			cat <<-EOF
				[agents.$agent]
				command = [$command]
				[agents.$agent.env]
				OPENAI_API_KEY = "env:STUB_API_KEY"
				STUB_API_KEY = "env:STUB_API_KEY"
			EOF
			;;
		gemini)
			cat <<-EOF
				[agents.gemini]
				command = ["$node", "$here/more/node_modules/@google/gemini-cli/bundle/gemini.js", "--acp"]
				[agents.gemini.env]
				GEMINI_API_KEY = "env:STUB_API_KEY"
				GEMINI_CLI_TRUST_WORKSPACE = "true"
				GOOGLE_GEMINI_BASE_URL = "$url"
			EOF
			;;
		opencode)
			cat <<-EOF
				[agents.opencode]
				command = ["$(program "$here/more/node_modules/opencode-*/bin/opencode")", "acp"]
				[agents.opencode.env]
				OPENCODE_DISABLE_AUTOUPDATE = "1"
				OPENCODE_DISABLE_MODELS_FETCH = "1"
			EOF
			;;
		esac
	done
} >"$COMPOZY_HOME/config.toml"

# A model that Codex knows is offered apply_patch; the newer adapter knows others, whose
# tools run in a sandbox of its own, and treats this one as unknown.
mkdir -p "$HOME/.codex" "$HOME/.gemini" "$HOME/.config/opencode"
cat >"$HOME/.codex/config.toml" <<EOF
model = "gpt-5.4"
model_provider = "stub"
[model_providers.stub]
name = "Stub"
base_url = "$url/v1"
env_key = "STUB_API_KEY"
wire_api = "responses"
EOF
cat >"$HOME/.gemini/settings.json" <<EOF
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}, "general": {"disableAutoUpdate": true}}
EOF
cat >"$HOME/.config/opencode/opencode.json" <<EOF
{"autoupdate": false, "share": "disabled", "model": "stub/stub-1", "small_model": "stub/stub-1", "enabled_providers": ["stub"],
 "permission": {"edit": "ask", "bash": "ask"},
 "provider": {"stub": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "$url/v1", "apiKey": "none"},
  "models": {"stub-1": {"tool_call": true, "limit": {"context": 100000, "output": 8000}}}}}}
EOF

"$compozy" daemon start >/dev/null

# repository makes a registered one, with a remote of its own.
repository() { # name
	git init -q -b main "$work/$1"
	git -C "$work/$1" config user.name "A Person"
	git -C "$work/$1" config user.email person@example.com
	echo "# A repository" >"$work/$1/README.md"
	git -C "$work/$1" add README.md
	git -C "$work/$1" commit -q -m "first"
	git init -q --bare "$work/$1.git"
	git -C "$work/$1" remote add origin "$work/$1.git"
	git -C "$work/$1" push -q origin main
	"$compozy" workspace add "$work/$1" >/dev/null
}

fail=0
tell() { # name, story and what it takes before the relay's command
	local name=$1 status=0 out
	shift
	repository "$name"
	out=$(timeout 300 node "$here/$1.mjs" "${@:2}" "$compozy" mcp serve --workspace "$work/$name" --tools all 2>"$work/stderr") || status=$?
	if [ $status = 0 ]; then
		printf 'ok    %-10s %s\n' "$name" "$out"
	else
		printf 'FAIL  %-10s exit %s: %s %s\n' "$name" "$status" "$out" "$(tail -c 2000 "$work/stderr")"
		fail=1
	fi
}
for agent in "$@"; do
	tell "$agent" story "$agent" "$work/$agent" "$work/$agent.git"
done
tell offer offer "$1" "${2:-$1}"
exit $fail
