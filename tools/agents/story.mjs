// What a person's own assistant does with an agent in the background, from the first
// prompt to the archive: node story.mjs AGENT REPOSITORY REMOTE COMMAND ARGS...
// COMMAND is `compozy mcp serve` of the repository; nothing else is called.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [agent, repository, remote, command, ...args] = process.argv.slice(2);

// patch is how Codex writes a file.
const patch = (file, text) => `*** Begin Patch\n*** Add File: ${file}\n+${text}\n*** End Patch\n`;

// write is the line that makes the model behind an agent write a file.
const write = {
  claude: (file, text) => `CALL Write ${JSON.stringify({ file_path: file, content: text + "\n" })}`,
  codex: (file, text) => `CALL apply_patch ${JSON.stringify({ input: patch(file, text) })}`,
  codex2: (file, text) => `CALL exec_command ${JSON.stringify({ cmd: `apply_patch <<'EOF'\n${patch(file, text)}EOF` })}`,
  gemini: (file, text) => `CALL write_file ${JSON.stringify({ file_path: file, content: text + "\n" })}`,
  opencode: (file, text) => `CALL write ${JSON.stringify({ filePath: file, content: text + "\n" })}`,
}[agent];

const client = new Client({ name: "story", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

let step = "connect";
async function call(tool, input) {
  const result = await client.callTool({ name: `compozy_host__${tool}`, arguments: input });
  if (result.isError) throw new Error(`${tool} ${JSON.stringify(input)}: ${result.content[0]?.text}`);
  return result.structuredContent;
}

const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);

// until follows the session until it stands as wanted. It fails at once when the session
// has ended otherwise.
async function until(id, what, wanted) {
  const deadline = performance.now() + 90_000;
  let cursor = "";
  for (;;) {
    const { session } = await call("sessions__get", { id });
    if (wanted(session)) return session;
    const ended = ["stopped", "failed", "lost"].includes(session.status);
    if (ended || performance.now() > deadline) throw new Error(`waited for ${what}; the session stands at ${JSON.stringify(session)}`);
    const answer = await call("sessions__wait", cursor ? { sessions: [id], cursor, timeout: 10 } : { sessions: [id], timeout: 0 });
    cursor = answer.cursor;
  }
}
const idle = (turns) => (s) => s.status === "idle" && s.turns === turns && !s.queued;

// settle answers what the session waits for, by the kind of an option, and returns the question.
async function settle(id, kind) {
  const q = await call("sessions__question", { id });
  assert.ok(q.pending, "it waits and asks nothing");
  const option = q.options.find((o) => o.kind === kind);
  assert.ok(option, `no option is ${kind}: ${JSON.stringify(q.options)}`);
  const settled = await call("sessions__answer", { id, question_id: q.question_id, answer: String(option.number) });
  assert.equal(settled.allowed, kind.startsWith("allow"));
  return q;
}

// turn sends a prompt and returns the words of its turn, when it has ended. What is asked
// in it is answered by the given kinds of options, in order.
async function turn(id, number, text, ...answers) {
  await call("sessions__send", { id, text });
  const questions = [];
  for (;;) {
    const s = await until(id, `turn ${number}`, (s) => s.status === "waiting" || idle(number)(s));
    if (s.status !== "waiting") break;
    assert.ok(questions.length < answers.length, `asks more than was expected: ${s.question}`);
    questions.push(await settle(id, answers[questions.length]));
  }
  return { ...(await words(id, number)), questions };
}

async function words(id, number) {
  const { turns } = await call("sessions__read", { id: `${id}:${number}`, full: true });
  assert.equal(turns.length, 1, `turn ${number} cannot be read`);
  return { text: turns[0].items.filter((i) => i.kind === "say").map((i) => i.text).join(""), items: turns[0].items, turn: turns[0] };
}

// inside returns the processes that work below a directory.
function inside(directory) {
  if (!existsSync("/proc/self/cwd")) return [];
  return readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readlinkSync(`/proc/${pid}/cwd`).startsWith(directory);
    } catch {
      return false; // it is gone, or not ours
    }
  });
}

const git = (...input) => execFileSync("git", ["-C", remote, ...input], { encoding: "utf8" }).trim();

async function story() {
  step = "agents";
  const { agents } = await call("sessions__agents", {});
  const known = agents.find((a) => a.name === agent);
  assert.ok(known?.available, `${agent} cannot be started: ${JSON.stringify(known)}`);

  step = "create";
  const start = performance.now();
  const created = await call("sessions__create", { agent, title: `A story of ${agent}`, prompt: "Say hello", isolation: "worktree", permissions: "ask" });
  const id = created.session.handle;
  const session = await until(id, "the first turn", idle(1));
  const ready = seconds(start);
  assert.notEqual(session.path, repository, "it works in the person's checkout");
  assert.ok(session.branch.startsWith(`compozy/${id}`), `branch ${session.branch}`);
  assert.match((await words(id, 1)).text, /ECHO: Say hello/);

  step = "edit, allowed";
  const edit = await turn(id, 2, write(`${session.path}/story.txt`, "once upon a time"), "allow_once");
  assert.equal(edit.questions.length, 1, "the edit was not asked for");
  const [asked] = edit.questions;
  assert.equal(asked.kind, "permission");
  assert.notEqual(asked.risk ?? "", "", "the risk is not judged");
  assert.match(asked.text + asked.input, /story\.txt/);
  assert.equal(readFileSync(`${session.path}/story.txt`, "utf8"), "once upon a time\n");
  assert.ok(edit.items.some((i) => i.kind === "tool" && i.status === "completed"), `no completed tool call in ${JSON.stringify(edit.items)}`);

  step = "edit, rejected";
  await turn(id, 3, write(`${session.path}/never.txt`, "never"), "reject_once");
  assert.ok(!existsSync(`${session.path}/never.txt`), "it was written although it was rejected");

  step = "a task of the agent's own";
  // Not every agent asks before it calls a tool.
  const title = `Told by ${agent}`;
  const made = await turn(id, 4, `CALL __tasks__create ${JSON.stringify({ tasks: [{ title }] })}`, "allow_once");
  assert.match(made.text, /TOOL SAID: /);
  const { tasks } = await call("tasks__list", {});
  const task = tasks.find((t) => t.title === title);
  assert.ok(task, `there is no task: ${made.text}`);
  const { origin } = await call("tasks__get", { id: task.handle });
  assert.match(origin.principal, /^session:/);

  step = "diff";
  const diff = await call("sessions__diff", { id });
  assert.deepEqual(diff.files.map((f) => [f.path, f.status]), [["story.txt", "added"]]);
  assert.match(diff.diff, /^\+once upon a time$/m);

  step = "publish";
  const published = await call("sessions__publish", { id, message: "Tell a story" });
  assert.ok(published.pushed);
  assert.equal(git("rev-parse", published.branch), published.commit, "the remote has another commit");
  assert.equal(git("show", `${published.branch}:story.txt`), "once upon a time");
  assert.equal(git("log", "-1", "--format=%s", published.branch), "Tell a story");
  assert.equal((await call("sessions__publish", { id })).pushed ?? false, false, "it published the same again");

  step = "stop";
  await call("sessions__stop", { ids: [id] });
  await until(id, "its end", (s) => s.status === "stopped");
  assert.deepEqual(inside(session.path), [], "processes of the agent are left");

  step = "resume";
  // Gemini empties the record of a session that it loads in the minute in which it made it.
  if (agent === "gemini") await new Promise((done) => setTimeout(done, 60_000 - (performance.now() - start)));
  const again = performance.now();
  const resumed = await call("sessions__resume", { ids: [id] });
  const recalled = await turn(id, 5, "FIRST");
  const back = seconds(again);
  assert.match(recalled.text, /FIRST: Say hello/, `it does not remember: ${JSON.stringify(resumed.notices)}`);
  assert.match((await words(id, 2)).text, /TOOL SAID/);

  step = "archive";
  await call("sessions__stop", { ids: [id] });
  await until(id, "its end", (s) => s.status === "stopped");
  const archived = await call("sessions__archive", { ids: [id] });
  assert.ok(archived.sessions[0].archived);
  assert.ok(!existsSync(session.path), "the worktree is still there");
  const { sessions } = await call("sessions__list", {});
  assert.deepEqual(sessions.map((s) => s.handle), []);

  const { agent_version } = await call("sessions__get", { id });
  return `${agent_version}: first turn after ${ready} s, resumed and answered after ${back} s, 5 turns, 2 questions answered, published, archived`;
}

try {
  console.log(await story());
} catch (error) {
  console.log(`${step}: ${error.message}`);
  process.exitCode = 1;
} finally {
  await client.close();
}
