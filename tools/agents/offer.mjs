// Three agents trade work, by what a person's assistant can call and nothing else: one
// offers it, two race to accept it, one of them does it, and the one who offered it is told:
// node offer.mjs OFFERER TAKER COMMAND ARGS...
// The takers are an agent of each kind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { call, connect, follow, idle, number, play, seconds, turn, until, words, write } from "./person.mjs";

const [offerer, taker, command, ...args] = process.argv.slice(2);
await connect(command, ...args);

// say is the line that makes the model behind an agent call one of our tools. An agent that
// cannot be told that they need no permission asks once a call.
const say = (verb, input) => `CALL __network__${verb} ${JSON.stringify(input)}`;
const allow = number("allow_once");

async function story(step) {
  const start = performance.now();
  step("three agents");
  await call("network__channel_create", { name: "jobs" });
  const agents = [offerer, offerer, taker];
  const sessions = await Promise.all(
    agents.map(async (agent, i) => {
      const { session } = await call("sessions__create", { agent, title: `Peer ${i}`, prompt: "Say hello" });
      return { agent, ...(await until(session.handle, "the first turn", idle(1))) };
    }),
  );
  const [boss, ...racers] = sessions;

  step("one offers");
  const offered = await turn(boss.handle, 2, say("offer", { to: "#jobs", title: "Tell a story", text: "Into story.txt, please." }), allow);
  const { work } = await call("network__work", {});
  assert.equal(work.length, 1, offered.text);
  const [{ handle: job, offerer: from, message: thread }] = work;
  assert.deepEqual([from, work[0].status], [boss.handle, "open"]);

  step("two race to accept");
  const tries = await Promise.all(racers.map((r) => turn(r.handle, 2, say("accept", { id: job }), allow)));
  const accepted = (await call("network__work", { id: job })).work[0];
  const winner = racers.find((r) => r.handle === accepted.accepter);
  assert.ok(winner && accepted.status === "accepted", JSON.stringify(accepted));
  const loser = racers.find((r) => r !== winner);
  const [won, lost] = [winner, loser].map((r) => tries[racers.indexOf(r)].text);
  assert.match(won, /accepted/);
  assert.match(lost, new RegExp(`${winner.handle}\\b`), `the second is not told who was first: ${lost}`);

  step("the offerer is told who it is");
  const told = await turn(boss.handle, 3, say("wait", { timeout: 55 }), allow);
  assert.match(told.text, new RegExp(`TOOL SAID: .*${winner.handle}\\b`));
  const { messages } = await call("network__thread_messages", { id: thread });
  const receipt = messages.find((m) => m.kind === "receipt").handle;

  step("one does it while the offerer waits");
  await call("sessions__send", { id: boss.handle, text: [say("mark_read", { up_to: receipt }), say("wait", { timeout: 55 })].join("\n") });
  const settle = say("settle", { id: job, outcome: "done", text: "It is told.", references: [`diff:${winner.handle}`] });
  await turn(winner.handle, 3, [write(winner.agent, `${winner.path}/story.txt`, "once upon a time"), settle].join("\n"), allow);
  const heard = await follow(boss.handle, 4, allow, allow);
  assert.match(heard.text, new RegExp(`It is told.*diff:${winner.handle}\\b|diff:${winner.handle}\\b.*It is told`, "s"));

  step("what came of it");
  const settled = (await call("network__work", { id: job })).work[0];
  assert.deepEqual([settled.status, settled.outcome, settled.references], ["settled", "done", [`diff:${winner.handle}`]]);
  assert.equal(readFileSync(`${winner.path}/story.txt`, "utf8"), "once upon a time\n");
  const diff = await call("sessions__diff", { id: winner.handle });
  assert.deepEqual(diff.files.map((f) => [f.path, f.status]), [["story.txt", "added"]]);
  assert.match(diff.diff, /^\+once upon a time$/m);
  for (const { handle } of [boss, loser]) assert.deepEqual((await call("sessions__diff", { id: handle })).files, []);

  step("archive");
  const ids = sessions.map((s) => s.handle);
  await call("sessions__stop", { ids });
  for (const id of ids) await until(id, "its end", (s) => s.status === "stopped");
  await call("sessions__archive", { ids });
  return `offered by ${boss.handle} (${boss.agent}), done by ${winner.handle} (${winner.agent}), not by ${loser.handle} (${loser.agent}); all in ${seconds(start)} s`;
}

await play(story);
