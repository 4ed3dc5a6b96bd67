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
const patch = (file, text) => `*** Begin Patch\n*** Add File: ${file}\n+${text.replaceAll("\n", "\n+")}\n*** End Patch\n`;

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
    // That a session begins to work wakes nobody who waits for it, so nobody waits for long.
    const answer = await call("sessions__wait", cursor ? { sessions: [id], cursor, timeout: 1 } : { sessions: [id], timeout: 0 });
    cursor = answer.cursor;
  }
}
const idle = (turns) => (s) => s.status === "idle" && s.turns === turns && !s.queued;
const working = (turns) => (s) => s.status === "working" && s.turns === turns;

// The ways to answer a question: by the number or by the label of the option that is of a
// kind, or with words, which reject.
const option = (q, kind) => q.options.find((o) => o.kind === kind) ?? assert.fail(`no option is ${kind}: ${JSON.stringify(q.options)}`);
const number = (kind) => (q) => String(option(q, kind).number);
const label = (kind) => (q) => option(q, kind).label;
const say = (text) => () => text;

// settle answers what the session waits for, and returns the question with what came of it.
async function settle(id, way) {
  const q = await call("sessions__question", { id });
  assert.ok(q.pending, "it waits and asks nothing");
  const answer = way(q);
  return { ...q, answer, settled: await call("sessions__answer", { id, question_id: q.question_id, answer }) };
}

// turn sends a prompt and returns the words of its turn, when it has ended. What is asked
// in it is answered in the given ways, in order. An answer in words makes a turn of itself.
async function turn(id, number, text, ...ways) {
  await call("sessions__send", { id, text });
  return follow(id, number, ...ways);
}

async function follow(id, number, ...ways) {
  const questions = [];
  for (;;) {
    const s = await until(id, `turn ${number}`, (s) => s.status === "waiting" || (s.status === "idle" && s.turns >= number && !s.queued));
    if (s.status !== "waiting") break;
    assert.ok(questions.length < ways.length, `asks more than was expected: ${s.question}`);
    questions.push(await settle(id, ways[questions.length]));
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

// progress waits for a session that is at work, and returns what it was told on the way.
async function progress(id) {
  const { cursor } = await call("sessions__wait", { sessions: [id], timeout: 0 });
  const told = [];
  const input = { name: "compozy_host__sessions__wait", arguments: { sessions: [id], cursor, timeout: 1 } };
  const { structuredContent } = await client.callTool(input, undefined, { onprogress: (p) => told.push(p.message) });
  assert.ok(structuredContent.timed_out, `something happened: ${JSON.stringify(structuredContent.changes)}`);
  return told;
}

// all reads every page of an answer.
async function all(tool, input, more = (page) => page.next_cursor !== "") {
  const pages = [];
  for (let cursor; ; ) {
    const page = await call(tool, cursor ? { ...input, cursor } : input);
    pages.push(page);
    assert.ok(pages.length < 1000, `${tool} has no end`);
    if (!more(page)) return pages;
    cursor = page.next_cursor;
  }
}

async function story() {
  step = "agents";
  const { agents } = await call("sessions__agents", {});
  const known = agents.find((a) => a.name === agent);
  assert.ok(known?.available, `${agent} cannot be started: ${JSON.stringify(known)}`);

  step = "create";
  const start = performance.now();
  const created = await call("sessions__create", { agent, title: `A story of ${agent}`, prompt: "Say hello", isolation: "worktree", permissions: "ask", client_key: "story" });
  const id = created.session.handle;
  const session = await until(id, "the first turn", idle(1));
  const ready = seconds(start);
  assert.notEqual(session.path, repository, "it works in the person's checkout");
  assert.ok(session.branch.startsWith(`compozy/${id}`), `branch ${session.branch}`);
  assert.match((await words(id, 1)).text, /ECHO: Say hello/);
  const repeated = await call("sessions__create", { agent, title: `A story of ${agent}`, prompt: "Say hello", isolation: "worktree", permissions: "ask", client_key: "story" });
  assert.ok(repeated.deduplicated && repeated.session.handle === id, "the same key made another session");

  step = "a second one";
  const other = (await call("sessions__create", { agent, title: "A neighbour", prompt: "SLEEP 300000" })).session.handle;
  const neighbour = await until(other, "its turn", working(1));
  assert.notEqual(neighbour.path, session.path);

  step = "inputs";
  const later = (await call("sessions__send", { id: other, text: "Later" })).input;
  const never = (await call("sessions__send", { id: other, text: "Never" })).input;
  assert.deepEqual([later.state, later.position, never.state, never.position], ["queued", 1, "queued", 2]);
  await call("sessions__cancel_input", { ids: [never.id] });

  step = "progress";
  assert.match((await progress(other)).join(), new RegExp(other));

  step = "list";
  const { sessions: both } = await call("sessions__list", { agent });
  assert.deepEqual(both.map((s) => [s.handle, s.status]), [[other, "working"], [id, "idle"]]);

  step = "edit, allowed by number";
  const edit = await turn(id, 2, write(`${session.path}/story.txt`, "once upon a time"), number("allow_once"));
  assert.equal(edit.questions.length, 1, "the edit was not asked for");
  const [asked] = edit.questions;
  assert.ok(asked.settled.allowed);
  assert.equal(asked.kind, "permission");
  assert.match(asked.risk, /^(low|medium|high)$/);
  assert.notEqual(asked.risk_reason, "", "nothing says why the risk is so");
  assert.match(JSON.stringify(JSON.parse(asked.input)), /story\.txt/, "the input is not what the agent wants to do");
  assert.equal(readFileSync(`${session.path}/story.txt`, "utf8"), "once upon a time\n");
  assert.ok(edit.items.some((i) => i.kind === "tool" && i.status === "completed"), `no completed tool call in ${JSON.stringify(edit.items)}`);
  await assert.rejects(call("sessions__answer", { id, question_id: asked.question_id, answer: "1" }), /settled/);

  step = "edit, allowed by label";
  const long = Array.from({ length: 1000 }, (_, i) => `line ${i} of what happened then`);
  const longer = await turn(id, 3, write(`${session.path}/long.txt`, long.join("\n")), label("allow_once"));
  assert.ok(longer.questions[0]?.settled.allowed);
  assert.equal(readFileSync(`${session.path}/long.txt`, "utf8"), long.join("\n") + "\n");

  step = "edit, rejected with words";
  const no = await turn(id, 4, write(`${session.path}/never.txt`, "never"), say("Not that file, please"));
  assert.equal(no.questions[0]?.settled.allowed ?? false, false);
  assert.ok(!existsSync(`${session.path}/never.txt`), "it was written although it was rejected");
  await until(id, "the turn of the words", idle(5));
  assert.match((await words(id, 5)).text, /ECHO: Not that file, please/);

  step = "a task of the agent's own";
  // Not every agent can be told that our tools need no permission.
  const title = `Told by ${agent}`;
  const made = await turn(id, 6, `CALL __tasks__create ${JSON.stringify({ tasks: [{ title }] })}`, number("allow_once"));
  assert.match(made.text, /TOOL SAID: /);
  const { tasks } = await call("tasks__list", {});
  const task = tasks.find((t) => t.title === title);
  assert.ok(task, `there is no task: ${made.text}`);
  const { origin } = await call("tasks__get", { id: task.handle });
  assert.match(origin.principal, /^session:/);

  step = "interrupt";
  await call("sessions__interrupt", { ids: [other] });
  await until(other, "the turn after", idle(2));
  assert.equal((await words(other, 1)).turn.stop_reason, "cancelled");
  assert.match((await words(other, 2)).text, /ECHO: Later/);
  const { inputs } = await call("sessions__inputs", { id: other });
  assert.deepEqual(inputs.map((i) => [i.text, i.state, i.turn]), [["Never", "cancelled", ""], ["Later", "delivered", `${other}:2`], ["SLEEP 300000", "delivered", `${other}:1`]]);

  step = "edit without a question";
  await turn(other, 3, write(`${neighbour.path}/own.txt`, "mine"));
  assert.equal(readFileSync(`${neighbour.path}/own.txt`, "utf8"), "mine\n");

  step = "tasks__start";
  const chore = (await call("tasks__create", { tasks: [{ title: "A chore" }] })).tasks[0].handle;
  const begun = await call("tasks__start", { id: chore, agent, instructions: `CALL __tasks__complete ${JSON.stringify({ id: chore, result: `done by ${agent}` })}` });
  const chores = begun.session;
  const worked = await follow(chores, 1, number("allow_once"));
  assert.match(worked.text, /TOOL SAID: /);
  const done = await call("tasks__get", { id: chore });
  assert.equal(done.task.status, "done", worked.text);
  assert.deepEqual(done.runs.map((r) => [r.holder, r.outcome, r.result]), [[`session:${begun.session_id}`, "done", `done by ${agent}`]]);
  const waited = await call("sessions__wait", { tasks: [chore], timeout: 0 });
  assert.ok(!waited.timed_out && waited.changes.some((c) => c.handle === chore), "waiting for the task tells nothing");

  step = "diff";
  const files = [["long.txt", "added", 1000], ["story.txt", "added", 1]];
  const stat = await call("sessions__diff", { id, stat_only: true });
  assert.deepEqual(stat.files.map((f) => [f.path, f.status, f.added]), files);
  assert.deepEqual([stat.added, stat.removed, stat.diff], [1001, 0, ""]);
  const one = await call("sessions__diff", { id, paths: ["story.txt"] });
  assert.deepEqual(one.files.map((f) => f.path), ["story.txt"]);
  assert.match(one.diff, /^\+once upon a time$/m);
  const pages = await all("sessions__diff", { id });
  assert.ok(pages.length > 1 && pages[0].truncated, "a long diff has one page");
  const lines = pages.map((p) => p.diff).join("").split("\n").filter((l) => l.startsWith("+line "));
  assert.deepEqual(lines, long.map((l) => "+" + l));

  step = "search";
  const { matches } = await call("sessions__search", { text: "ONCE UPON" });
  assert.ok(matches.some((m) => m.turn === `${id}:2` && m.in_prompt), JSON.stringify(matches));
  assert.deepEqual((await call("sessions__search", { text: "ONCE UPON", id: other })).matches, []);

  step = "events";
  const events = (await all("sessions__events", { id, limit: 20 }, (page) => page.more)).flatMap((page) => page.events);
  events.forEach((e, i) => assert.equal(e.seq, String(i + 1), "the events have a gap"));
  events.forEach((e) => e.truncated || JSON.parse(e.json));
  for (const kind of ["status", "prompt", "update", "question", "answer", "stop"]) assert.ok(events.some((e) => e.kind === kind), `no event is ${kind}`);

  step = "publish";
  const published = await call("sessions__publish", { id, message: "Tell a story" });
  assert.ok(published.pushed);
  assert.equal(git("rev-parse", published.branch), published.commit, "the remote has another commit");
  assert.equal(git("show", `${published.branch}:story.txt`), "once upon a time");
  assert.equal(git("log", "-1", "--format=%s", published.branch), "Tell a story");
  assert.equal((await call("sessions__publish", { id })).pushed ?? false, false, "it published the same again");

  step = "stop";
  const together = [id, other, chores];
  await call("sessions__stop", { ids: together });
  for (const each of together) {
    const { path } = await until(each, "its end", (s) => s.status === "stopped");
    assert.deepEqual(inside(path), [], "processes of the agent are left");
  }

  step = "resume";
  // Gemini empties the record of a session that it loads in the minute in which it made it.
  if (agent === "gemini") await new Promise((done) => setTimeout(done, 60_000 - (performance.now() - start)));
  const again = performance.now();
  const resumed = await call("sessions__resume", { ids: [id] });
  const recalled = await turn(id, 7, "FIRST");
  const back = seconds(again);
  assert.match(recalled.text, /FIRST: Say hello/, `it does not remember: ${JSON.stringify(resumed.notices)}`);
  assert.match((await words(id, 2)).text, /TOOL SAID/);
  assert.equal(recalled.items.length, 1, `it told its history again: ${JSON.stringify(recalled.items)}`);

  step = "archive";
  await call("sessions__stop", { ids: [id] });
  await until(id, "its end", (s) => s.status === "stopped");
  const archived = await call("sessions__archive", { ids: together });
  for (const s of archived.sessions) {
    assert.ok(s.archived);
    assert.ok(!existsSync(s.path), `the worktree ${s.path} is still there`);
  }
  const { sessions } = await call("sessions__list", {});
  assert.deepEqual(sessions.map((s) => s.handle), []);

  const { agent_version, notices } = await call("sessions__get", { id });
  return `${agent_version}: first turn after ${ready} s, resumed and answered after ${back} s, all in ${seconds(start)} s; ${made.questions.length} questions about our own tools; notices ${JSON.stringify(notices)}`;
}

try {
  console.log(await story());
} catch (error) {
  console.log(`${step}: ${error.message}`);
  process.exitCode = 1;
} finally {
  await client.close();
}
