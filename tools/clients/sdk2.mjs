// The official TypeScript SDK, version 2: node sdk2.mjs COMMAND ARGS..., or node sdk2.mjs URL
// with the token in COMPOZY_MCP_SERVE_TOKEN.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { headers, run } from "./scenario.mjs";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk2", version: "2" }, { versionNegotiation: { mode: "auto" } });
await client.connect(
  command.startsWith("http:")
    ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }),
);
console.log(
  await run(client, async (uri, told) => {
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => told(params));
    await client.listen({ resourceSubscriptions: [uri] });
  }),
);
await client.close();
