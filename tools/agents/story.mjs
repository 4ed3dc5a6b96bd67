// What a person's own assistant does with an agent in the background, from the first
// prompt to the archive: node story.mjs AGENT REPOSITORY REMOTE COMMAND ARGS...
// COMMAND is `compozy mcp serve` of the repository; nothing else is called.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { call, client, connect, follow, idle, label, number, play, say, seconds, turn, until, words, working, write } from "./person.mjs";

const [agent, repository, remote, command, ...args] = process.argv.slice(2);

await connect(command, ...args);

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

async function story(step) {
  step("agents");
  const { agents } = await call("sessions__agents", {});
  const known = agents.find((a) => a.name === agent);
  assert.ok(known?.available, `${agent} cannot be started: ${JSON.stringify(known)}`);

  step("create");
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

  step("a second one");
  const other = (await call("sessions__create", { agent, title: "A neighbour", prompt: "SLEEP 300000" })).session.handle;
  const neighbour = await until(other, "its turn", working(1));
  assert.notEqual(neighbour.path, session.path);

  step("inputs");
  const later = (await call("sessions__send", { id: other, text: "Later" })).input;
  const never = (await call("sessions__send", { id: other, text: "Never" })).input;
  assert.deepEqual([later.state, later.position, never.state, never.position], ["queued", 1, "queued", 2]);
  await call("sessions__cancel_input", { ids: [never.id] });

  step("progress");
  assert.match((await progress(other)).join(), new RegExp(other));

  step("list");
  const { sessions: both } = await call("sessions__list", { agent });
  assert.deepEqual(both.map((s) => [s.handle, s.status]), [[other, "working"], [id, "idle"]]);

  step("edit, allowed by number");
  const edit = await turn(id, 2, write(agent, `${session.path}/story.txt`, "once upon a time"), number("allow_once"));
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

  step("edit, allowed by label");
  const long = Array.from({ length: 1000 }, (_, i) => `line ${i} of what happened then`);
  const longer = await turn(id, 3, write(agent, `${session.path}/long.txt`, long.join("\n")), label("allow_once"));
  assert.ok(longer.questions[0]?.settled.allowed);
  assert.equal(readFileSync(`${session.path}/long.txt`, "utf8"), long.join("\n") + "\n");

  step("edit, rejected with words");
  const no = await turn(id, 4, write(agent, `${session.path}/never.txt`, "never"), say("Not that file, please"));
  assert.equal(no.questions[0]?.settled.allowed ?? false, false);
  assert.ok(!existsSync(`${session.path}/never.txt`), "it was written although it was rejected");
  await until(id, "the turn of the words", idle(5));
  assert.match((await words(id, 5)).text, /ECHO: Not that file, please/);

  step("a task of the agent's own");
  // Not every agent can be told that our tools need no permission.
  const title = `Told by ${agent}`;
  const made = await turn(id, 6, `CALL __tasks__create ${JSON.stringify({ tasks: [{ title }] })}`, number("allow_once"));
  assert.match(made.text, /TOOL SAID: /);
  const { tasks } = await call("tasks__list", {});
  const task = tasks.find((t) => t.title === title);
  assert.ok(task, `there is no task: ${made.text}`);
  const { origin } = await call("tasks__get", { id: task.handle });
  assert.match(origin.principal, /^session:/);

  step("interrupt");
  await call("sessions__interrupt", { ids: [other] });
  await until(other, "the turn after", idle(2));
  assert.equal((await words(other, 1)).turn.stop_reason, "cancelled");
  assert.match((await words(other, 2)).text, /ECHO: Later/);
  const { inputs } = await call("sessions__inputs", { id: other });
  assert.deepEqual(inputs.map((i) => [i.text, i.state, i.turn]), [["Never", "cancelled", ""], ["Later", "delivered", `${other}:2`], ["SLEEP 300000", "delivered", `${other}:1`]]);

  step("edit without a question");
  await turn(other, 3, write(agent, `${neighbour.path}/own.txt`, "mine"));
  assert.equal(readFileSync(`${neighbour.path}/own.txt`, "utf8"), "mine\n");

  step("tasks__start");
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

  step("diff");
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

  step("search");
  const { matches } = await call("sessions__search", { text: "ONCE UPON" });
  assert.ok(matches.some((m) => m.turn === `${id}:2` && m.in_prompt), JSON.stringify(matches));
  assert.deepEqual((await call("sessions__search", { text: "ONCE UPON", id: other })).matches, []);

  step("events");
  const events = (await all("sessions__events", { id, limit: 20 }, (page) => page.more)).flatMap((page) => page.events);
  events.forEach((e, i) => assert.equal(e.seq, String(i + 1), "the events have a gap"));
  events.forEach((e) => e.truncated || JSON.parse(e.json));
  for (const kind of ["status", "prompt", "update", "question", "answer", "stop"]) assert.ok(events.some((e) => e.kind === kind), `no event is ${kind}`);

  step("publish");
  const published = await call("sessions__publish", { id, message: "Tell a story" });
  assert.ok(published.pushed);
  assert.equal(git("rev-parse", published.branch), published.commit, "the remote has another commit");
  assert.equal(git("show", `${published.branch}:story.txt`), "once upon a time");
  assert.equal(git("log", "-1", "--format=%s", published.branch), "Tell a story");
  assert.equal((await call("sessions__publish", { id })).pushed ?? false, false, "it published the same again");

  step("stop");
  const together = [id, other, chores];
  await call("sessions__stop", { ids: together });
  for (const each of together) {
    const { path } = await until(each, "its end", (s) => s.status === "stopped");
    assert.deepEqual(inside(path), [], "processes of the agent are left");
  }

  step("resume");
  // Gemini empties the record of a session that it loads in the minute in which it made it.
  if (agent === "gemini") await new Promise((done) => setTimeout(done, 60_000 - (performance.now() - start)));
  const again = performance.now();
  const resumed = await call("sessions__resume", { ids: [id] });
  const recalled = await turn(id, 7, "FIRST");
  const back = seconds(again);
  assert.match(recalled.text, /FIRST: Say hello/, `it does not remember: ${JSON.stringify(resumed.notices)}`);
  assert.match((await words(id, 2)).text, /TOOL SAID/);
  assert.equal(recalled.items.length, 1, `it told its history again: ${JSON.stringify(recalled.items)}`);

  step("archive");
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

await play(story);
