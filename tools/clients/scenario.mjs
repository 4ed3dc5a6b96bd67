// What a client over HTTP sends with each request.
export const headers = { Authorization: `Bearer ${process.env.COMPOZY_MCP_SERVE_TOKEN}` };

// One call of every published tool, in an order in which each can succeed. A step is a
// tool's family and verb with its arguments; later steps name tasks by the handles that
// a new workspace gives out (t1, t2, ...) and memories by key. Arguments that an earlier
// answer holds are made from the last answer of each tool.
export const steps = [
  ["tasks", "create", { tasks: [{ title: "Plan the release", key: "plan" }, { title: "Write notes" }] }],
  ["tasks", "create", { tasks: [{ title: "Once only" }], client_key: "once" }],
  ["tasks", "create", { tasks: [{ title: "Once only" }], client_key: "once" }],
  ["tasks", "import", { tasks: [{ key: "a", title: "First" }, { key: "b", title: "Second", depends_on: ["a"], needs_human: true }], dry_run: true }],
  ["tasks", "import", { tasks: [{ key: "a", title: "First" }, { key: "b", title: "Second", depends_on: ["a"], needs_human: true }] }],
  ["tasks", "list", {}],
  ["tasks", "list", { status: ["ready"], limit: "5", archived: null }],
  ["tasks", "get", { id: "t1" }],
  ["tasks", "search", { text: "RELEASE" }],
  ["tasks", "tree", {}],
  ["tasks", "activity", {}],
  ["tasks", "summary", {}],
  ["tasks", "update", { tasks: [{ id: "t3", title: "Changed", priority: "high", add_labels: ["x"] }] }],
  ["tasks", "note", { notes: [{ id: "t3", text: "A note with 日本語 and 🚀" }] }],
  ["tasks", "move", { ids: ["t3"], place: "last" }],
  ["tasks", "link", { links: [{ id: "t3", depends_on: ["t1"] }] }],
  ["tasks", "claim", { id: "t1" }],
  ["tasks", "renew", { id: "t1" }],
  ["tasks", "release", { id: "t1", reason: "later" }],
  ["tasks", "claim", {}],
  ["tasks", "complete", { id: "t1", result: "planned", usage: { cost_usd: 0.25, tokens: "1200" } }],
  ["tasks", "fail", { id: "t2", reason: "no time", reason_class: "transient" }],
  ["tasks", "why", { id: "t2" }],
  ["tasks", "estimate", { text: "plan another release" }],
  ["tasks", "retry", { ids: ["t2"] }],
  ["tasks", "pause", { ids: ["t2"] }],
  ["tasks", "resume", { ids: ["t2"] }],
  ["tasks", "cancel", { ids: ["t2"] }],
  ["tasks", "archive", { ids: ["t2"] }],
  ["tasks", "unarchive", { ids: ["t2"] }],
  ["tasks", "delete", { ids: ["t2"] }],
  ["memory", "store", { text: "Releases are cut on Thursdays.", kind: "decision", key: "release-day", tags: ["release"] }],
  ["memory", "recall", { query: "when do we release?" }],
  ["memory", "recall", { query: "(\"AND* c++ NEAR(" }],
  ["memory", "list", {}],
  ["memory", "get", { id: "release-day" }],
  ["memory", "update", { id: "release-day", status: "approved", confidence: 1 }],
  ["memory", "archive", { ids: ["release-day"] }],
  ["memory", "unarchive", { ids: ["release-day"] }],
  ["memory", "forget", { ids: ["release-day"] }],
  ["network", "channel_create", { name: "review", description: "What is to be looked at." }],
  ["network", "channels", {}],
  ["network", "send", { to: "#review", title: "Login", text: "Who looks at the login? 日本語 🚀", kind: "ask", expect_from: ["operator"], reply_within: 60 }],
  ["network", "send", (last) => ({ reply_to: last("network", "send").message.handle, text: "I do." })],
  ["network", "send", { to: "@operator", text: "Hello." }],
  ["network", "threads", { channel: "review" }],
  ["network", "thread_messages", (last) => ({ id: last("network", "threads").threads[0].handle })],
  ["network", "directs", {}],
  ["network", "direct_messages", { id: "operator" }],
  ["network", "peers", {}],
  ["network", "inbox", {}],
  ["network", "inbox", (last) => ({ ids: [last("network", "send").message.id] })],
  ["network", "mark_read", (last) => ({ up_to: last("network", "send").message.handle })],
  ["network", "search", { text: "LOGIN" }],
  ["network", "usage", {}],
  ["network", "offer", { to: "#review", title: "Look at it", text: "All of it.", expires_in: "60" }],
  ["network", "work", { status: ["open"], mine: true }],
  ["network", "withdraw", (last) => ({ id: last("network", "offer").work.handle, reason: "done already" })],
  ["network", "wait", { timeout: 0 }],
  ["network", "channel_update", { id: "review", description: "Reviews." }],
  ["resources", "put", { kind: "document", name: "guide", text: "# Setup\n\nmake tset\n\n# Release\n\nリリース 🚀\n", labels: ["docs"], client_key: "guide" }],
  ["resources", "list", { kind: ["document"], labels: ["docs"] }],
  ["resources", "get", { id: "guide#setup" }],
  ["resources", "edit", (last) => ({ id: "guide", old_text: "make tset", new_text: "make test", expected_version: last("resources", "get").version })],
  ["resources", "history", { id: "document/guide", to_version: "2" }],
  ["resources", "search", { query: "リリース" }],
  ["resources", "get", (last) => ({ id: last("resources", "search").hits[0].place })],
  ["resources", "comment", { id: "guide", text: "Windows is missing." }],
  ["resources", "label", { ids: ["guide"], add_labels: ["setup"], remove_labels: ["docs"] }],
  ["resources", "rename", { id: "guide", name: "readme" }],
  ["resources", "archive", { ids: ["readme"] }],
  ["resources", "unarchive", { ids: ["readme"] }],
  ["resources", "delete", { ids: ["readme"] }],
  ["sessions", "agents", {}],
  ["sessions", "create", { title: "Work", permissions: "ask", prompt: 'EDIT notes.txt|hello\nASK clean up|execute|{"command":"rm -rf build"}' }],
  ["sessions", "wait", { sessions: ["s1"] }],
  ["sessions", "question", { id: "s1" }],
  ["sessions", "answer", (last) => ({ id: "s1", question_id: last("sessions", "question").question_id, answer: "1" })],
  ["sessions", "wait", (last) => ({ sessions: ["s1"], cursor: last("sessions", "wait").cursor })],
  ["sessions", "list", {}],
  ["sessions", "get", { id: "s1" }],
  ["sessions", "read", { id: "s1:1", full: true }],
  ["sessions", "search", { text: "CLEAN UP" }],
  ["sessions", "events", { id: "s1" }],
  ["sessions", "diff", { id: "s1" }],
  ["sessions", "publish", { id: "s1" }],
  ["sessions", "rename", { id: "s1", title: "Other work", replace_user_title: true }],
  ["sessions", "send", { id: "s1", text: "WAIT" }],
  ["sessions", "send", { id: "s1", text: "SAY never" }],
  ["sessions", "cancel_input", (last) => ({ ids: [last("sessions", "send").input.id] })],
  ["sessions", "inputs", { id: "s1" }],
  ["sessions", "interrupt", { ids: ["s1"] }],
  ["sessions", "stop", { ids: ["s1"] }],
  ["sessions", "resume", { ids: ["s1"] }],
  ["sessions", "stop", { ids: ["s1"] }],
  ["sessions", "archive", { ids: ["s1"] }],
  ["sessions", "unarchive", { ids: ["s1"] }],
  ["tasks", "create", { tasks: [{ title: "For an agent", key: "agent", body: 'CALL compozy compozy_host__tasks__complete {"id":"agent"}' }] }],
  ["tasks", "start", { id: "agent" }],
  ["sessions", "wait", { tasks: ["agent"] }],
  ["sessions", "create", { title: "Offers", prompt: 'CALL compozy compozy_host__network__offer {"to":"#review","title":"From an agent"}' }],
  ["sessions", "wait", (last) => ({ sessions: [last("sessions", "create").session.handle] })],
  ["network", "accept", { id: "w2" }],
  ["network", "settle", { id: "w2", outcome: "done", text: "Looked at.", references: ["task:agent"] }],
  ["network", "channel_archive", { ids: ["review"] }],
];

// run takes a connected client through every step. It fails on a protocol error, on a
// tool error, on an answer without structured content, and on a tool that no step calls.
//
// Then the resources are read, and one is watched: watch subscribes to a URI and calls back
// when it has changed; without it, nothing is.
export async function run(client, watch) {
  const { tools } = await client.listTools();
  const uncalled = new Set(tools.map((t) => t.name));
  const answers = new Map();
  const last = (family, verb) => answers.get(`compozy_host__${family}__${verb}`);
  for (const [family, verb, args] of steps) {
    const name = `compozy_host__${family}__${verb}`;
    const result = await client.callTool({ name, arguments: typeof args === "function" ? args(last) : args });
    if (result.isError) throw new Error(`${name}: ${result.content[0]?.text}`);
    if (!result.structuredContent) throw new Error(`${name}: no structured content`);
    if (JSON.stringify(JSON.parse(result.content[0].text)) !== JSON.stringify(result.structuredContent)) {
      throw new Error(`${name}: text and structured content differ`);
    }
    answers.set(name, result.structuredContent);
    uncalled.delete(name);
  }
  if (uncalled.size > 0) throw new Error(`no step calls ${[...uncalled].join(", ")}`);

  const missing = await client.callTool({ name: "compozy_host__tasks__get", arguments: { id: "t999" } });
  if (!missing.isError || missing.structuredContent) throw new Error("an unknown task is no plain tool error");
  const mirrored = await resources(client, watch);
  return `${tools.length} tools listed, ${steps.length} calls accepted, 1 tool error seen as one, ${mirrored}`;
}

async function resources(client, watch) {
  const call = async (verb, args) => {
    const result = await client.callTool({ name: `compozy_host__resources__${verb}`, arguments: args });
    if (result.isError) throw new Error(`resources__${verb}: ${result.content[0]?.text}`);
  };
  await call("put", { kind: "document", name: "release notes", text: "# Release\n\nfirst\n" });
  const uris = new Set();
  for (let cursor, more = true; more; more = cursor !== undefined) {
    const page = await client.listResources(cursor === undefined ? {} : { cursor });
    for (const r of page.resources) uris.add(r.uri);
    cursor = page.nextCursor;
  }
  for (const kind of ["document/release%20notes", "session/s1"]) {
    if (!uris.has(`compozy://${kind}`)) throw new Error(`compozy://${kind} is not listed: ${[...uris]}`);
  }
  for (const uri of uris) {
    const { contents } = await client.readResource({ uri });
    if (contents.length !== 1 || contents[0].uri !== uri || !contents[0].text) throw new Error(`${uri}: ${JSON.stringify(contents)}`);
  }
  const { resourceTemplates } = await client.listResourceTemplates();
  if (resourceTemplates.length !== 2) throw new Error(`templates ${JSON.stringify(resourceTemplates)}`);
  if (!watch) return `${uris.size} resources read`;

  const uri = "compozy://document/release%20notes";
  let told;
  const changed = new Promise((resolve, reject) => {
    told = resolve;
    setTimeout(() => reject(new Error(`nobody was told that ${uri} has changed`)), 30_000).unref();
  });
  await watch(uri, (params) => params.uri === uri && told());
  await call("edit", { id: "release notes", old_text: "first", new_text: "second" });
  await changed;
  return `${uris.size} resources read, 1 watched`;
}
