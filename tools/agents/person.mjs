// What a person's own assistant does with sessions, through a relay and nothing else.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

// patch is how Codex writes a file.
const patch = (file, text) => `*** Begin Patch\n*** Add File: ${file}\n+${text.replaceAll("\n", "\n+")}\n*** End Patch\n`;

// write returns the line that makes the model behind an agent write a file.
export const write = (agent, file, text) => writes[agent](file, text);
const writes = {
  claude: (file, text) => `CALL Write ${JSON.stringify({ file_path: file, content: text + "\n" })}`,
  codex: (file, text) => `CALL apply_patch ${JSON.stringify({ input: patch(file, text) })}`,
  codex2: (file, text) => `CALL exec_command ${JSON.stringify({ cmd: `apply_patch <<'EOF'\n${patch(file, text)}EOF` })}`,
  gemini: (file, text) => `CALL write_file ${JSON.stringify({ file_path: file, content: text + "\n" })}`,
  opencode: (file, text) => `CALL write ${JSON.stringify({ filePath: file, content: text + "\n" })}`,
};

export const client = new Client({ name: "story", version: "1" });

// connect starts the relay, which is a command with its arguments.
export const connect = (command, ...args) => client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

export async function call(tool, input) {
  const result = await client.callTool({ name: `compozy_host__${tool}`, arguments: input });
  if (result.isError) throw new Error(`${tool} ${JSON.stringify(input)}: ${result.content[0]?.text}`);
  return result.structuredContent;
}

export const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);

// until follows the session until it stands as wanted. It fails at once when the session
// has ended otherwise.
export async function until(id, what, wanted) {
  const deadline = performance.now() + 90_000;
  let cursor = "";
  for (;;) {
    const { session } = await call("sessions__get", { id });
    if (wanted(session)) return session;
    const ended = ["stopped", "failed", "lost"].includes(session.status);
    if (ended || performance.now() > deadline) throw new Error(`waited for ${what}; the session stands at ${JSON.stringify(session)}`);
    // That a session begins to work wakes nobody who waits for it, so nobody waits for long.
    const answer = await call("sessions__wait", cursor ? { sessions: [id], cursor, timeout: 1 } : { sessions: [id], timeout: 0 });
    cursor = answer.cursor;
  }
}
export const idle = (turns) => (s) => s.status === "idle" && s.turns === turns && !s.queued;
export const working = (turns) => (s) => s.status === "working" && s.turns === turns;

// The ways to answer a question: by the number or by the label of the option that is of a
// kind, or with words, which reject.
const option = (q, kind) => q.options.find((o) => o.kind === kind) ?? assert.fail(`no option is ${kind}: ${JSON.stringify(q.options)}`);
export const number = (kind) => (q) => String(option(q, kind).number);
export const label = (kind) => (q) => option(q, kind).label;
export const say = (text) => () => text;

// settle answers what the session waits for, and returns the question with what came of it.
async function settle(id, way) {
  const q = await call("sessions__question", { id });
  assert.ok(q.pending, "it waits and asks nothing");
  const answer = way(q);
  return { ...q, answer, settled: await call("sessions__answer", { id, question_id: q.question_id, answer }) };
}

// turn sends a prompt and returns the words of its turn, when it has ended. What is asked
// in it is answered in the given ways, in order. An answer in words makes a turn of itself.
export async function turn(id, number, text, ...ways) {
  await call("sessions__send", { id, text });
  return follow(id, number, ...ways);
}

export async function follow(id, number, ...ways) {
  const questions = [];
  for (;;) {
    const s = await until(id, `turn ${number}`, (s) => s.status === "waiting" || (s.status === "idle" && s.turns >= number && !s.queued));
    if (s.status !== "waiting") break;
    assert.ok(questions.length < ways.length, `asks more than was expected: ${s.question}`);
    questions.push(await settle(id, ways[questions.length]));
  }
  return { ...(await words(id, number)), questions };
}

export async function words(id, number) {
  const { turns } = await call("sessions__read", { id: `${id}:${number}`, full: true });
  assert.equal(turns.length, 1, `turn ${number} cannot be read`);
  return { text: turns[0].items.filter((i) => i.kind === "say").map((i) => i.text).join(""), items: turns[0].items, turn: turns[0] };
}

// play runs a story that says which step it is at, and prints what it returns.
export async function play(story) {
  let step = "connect";
  try {
    console.log(await story((name) => (step = name)));
  } catch (error) {
    console.log(`${step}: ${error.message}`);
    process.exitCode = 1;
  } finally {
    await client.close();
  }
}
