// The official TypeScript SDK, version 1: node sdk1.mjs COMMAND ARGS..., or node sdk1.mjs URL
// with the token in COMPOZY_MCP_SERVE_TOKEN.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { headers, run } from "./scenario.mjs";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk1", version: "1" });
await client.connect(
  command.startsWith("http:")
    ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }),
);
console.log(await run(client));
await client.close();
