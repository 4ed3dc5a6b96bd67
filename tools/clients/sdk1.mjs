// The official TypeScript SDK, version 1: node sdk1.mjs COMMAND ARGS..., or node sdk1.mjs URL
// with the token in COMPOZY_MCP_SERVE_TOKEN.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { headers, run } from "./scenario.mjs";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk1", version: "1" });
await client.connect(
  command.startsWith("http:")
    ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }),
);
// Over HTTP there is no session that could be subscribed, and the handshake says so.
const watch = client.getServerCapabilities().resources.subscribe
  ? async (uri, told) => {
      client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => told(params));
      await client.subscribeResource({ uri });
    }
  : undefined;
console.log(await run(client, watch));
await client.close();
