// The official TypeScript SDK, version 2: node sdk2.mjs COMMAND ARGS...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { run } from "./scenario.mjs";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk2", version: "2" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
console.log(await run(client));
await client.close();
