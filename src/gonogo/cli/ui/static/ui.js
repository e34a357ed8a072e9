"use strict";
// Whatever comes from files, logs and programs is set as text: nothing here is parsed as markup.
const $ = (id) => document.getElementById(id);
const NUMBERS = ["nodes", "steps", "seq_len"];
const TEXTS = ["command", "gpus", "host_memory", "ranks", "model", "tune", "task", "teacher"];
let told = null; // what the server told at the start
let language = document.documentElement.lang;
let folder = "";
let entries = { path: "", entries: [], left_out: 0 };
let reports = [];
let open = null; // the id of what is shown
let shownAs = ""; // how it is shown, so that a frame is not loaded anew
let logs = []; // names of chosen logs, from the root

const say = (name) => told.words[name]?.[language] ?? name;

function node(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(text, className, onClick) {
  const made = node("button", text, className);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Error(say("gone"));
  }
  const given = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(given.refused?.[language] ?? `${answer.status}`);
  return given;
}

async function tried(work) {
  $("refused").textContent = "";
  try {
    return await work();
  } catch (error) {
    $("refused").textContent = error.message;
  }
}

// -- the folder --------------------------------------------------------------------------------------------------------

const joined = (path, name) => (path ? `${path}/${name}` : name);

async function enter(path) {
  await tried(async () => {
    entries = await ask(`folder?path=${encodeURIComponent(path || ".")}`);
    folder = entries.path;
    drawFolder();
  });
}

function drawFolder() {
  const parts = folder ? folder.split("/") : [];
  const crumbs = [told.root.split("/").pop() || "/", ...parts].map((name, depth) => {
    const made = button(name, "", () => enter(parts.slice(0, depth).join("/")));
    if (depth === parts.length) made.setAttribute("aria-current", "location");
    return made;
  });
  $("crumbs").replaceChildren(...crumbs.flatMap((one, index) => (index ? [node("span", "/"), one] : [one])));
  const rows = entries.entries.map(drawEntry);
  $("files").replaceChildren(...(rows.length ? rows : [node("li", say("empty"), "none")]));
  $("left-out").hidden = !entries.left_out;
  $("left-out").textContent = say("left out").replace("{count}", entries.left_out);
}

function drawEntry(entry) {
  const row = node("li", undefined, entry.kind);
  const path = joined(folder, entry.name);
  const does = {
    folder: () => enter(path),
    launch: () => { choose("before"); $("command").value = entry.command; drawFolder(); },
    log: () => { choose("after"); logs = logs.includes(path) ? logs.filter((one) => one !== path) : [...logs, path]; drawChosen(); },
    records: () => start("report", { records: entry.name }),
  }[entry.kind];
  const inner = does ? button(undefined, "", does) : node("span", undefined, "row");
  if (entry.kind === "launch") inner.setAttribute("aria-pressed", String($("command").value === entry.command));
  if (entry.kind === "log") inner.setAttribute("aria-pressed", String(logs.includes(path)));
  inner.append(node("span", entry.kind === "folder" ? `${entry.name}/` : entry.name, "name"));
  if (entry.kind !== "file") inner.append(node("small", say(`kind ${entry.kind}`)));
  inner.title = entry.name;
  row.append(inner);
  return row;
}

function drawChosen() {
  $("chosen").replaceChildren(...logs.map((path) => {
    const row = node("li");
    row.append(button(`${path} ×`, "", () => { logs = logs.filter((one) => one !== path); drawChosen(); }));
    return row;
  }));
  drawFolder();
}

// -- asking ------------------------------------------------------------------------------------------------------------

function choose(name, focused = false) {
  for (const one of ["before", "after"]) {
    const tab = $(`tab-${one}`);
    $(one).hidden = one !== name;
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    if (focused && one === name) tab.focus();
  }
}

function upTo(path) {
  return folder ? "../".repeat(folder.split("/").length) + path : path;
}

function asked() {
  const values = Object.fromEntries(TEXTS.map((name) => [name, $(name).value.trim()]));
  for (const name of NUMBERS) if ($(name).value) values[name] = Number($(name).value);
  const others = Object.fromEntries([...document.querySelectorAll("[data-set]")].flatMap((one) => (one.value ? [[one.dataset.set, one.value]] : [])));
  const chosen = Object.keys(others).length ? ($("beside").checked ? { also: [others] } : { settings: others }) : {};
  return { ...values, ...chosen, training_changes: $("training_changes").checked };
}

async function start(tool, values) {
  await tried(async () => {
    const job = await ask("jobs", { tool, language, folder: folder || ".", ...values });
    reports = [job, ...reports];
    show(job.id, true);
    follow(job.id, "");
  });
}

const live = {}; // by job: what its ranks did, in the order of time

async function follow(id, doing, seen = 0) {
  try {
    const job = await ask(`jobs/${id}?doing=${encodeURIComponent(doing)}&seen=${seen}`);
    live[id] = [...(seen ? live[id] : []), ...job.states];
    reports = reports.map((one) => (one.id === id ? { ...job, what: one.what || job.what } : one));
    drawReports();
    if (open === id) drawShown();
    if (job.state === "running") follow(id, job.doing, job.seen);
    else delete live[id];
  } catch (error) {
    $("refused").textContent = error.message;
  }
}

// -- reports -----------------------------------------------------------------------------------------------------------

const verdictClass = (verdict) => verdict.toLowerCase();
const subject = (one) => one.what || say(one.tool === "diagnose" ? "pasted" : "whole folder");
const titled = (one) => [one.folder, subject(one)].filter(Boolean).join(" · ");
const took = (seconds) => (seconds < 60 ? `${Math.round(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`);

function chip(one) {
  if (one.state === "done") return node("span", one.verdict, `chip ${verdictClass(one.verdict)}`);
  return node("span", say(one.state), `chip ${one.state}`);
}

function when(one) {
  const at = new Date(one.begun * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const made = node("time", at.toLocaleString(language, today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }));
  made.dateTime = at.toISOString();
  return made;
}

function drawReports() {
  const focused = document.activeElement?.dataset?.report;
  $("no-reports").hidden = reports.length > 0;
  $("reports").replaceChildren(...reports.map((one) => {
    const row = node("li");
    const made = button(undefined, "", () => show(one.id, true));
    made.dataset.report = one.id;
    if (open === one.id) made.setAttribute("aria-current", "true");
    const name = node("span", undefined, "name");
    name.append(node("span", say(one.tool)), when(one));
    const what = node("span", titled(one), "what");
    made.append(chip(one), name, what);
    made.title = what.textContent;
    row.append(made);
    return row;
  }));
  if (focused) $("reports").querySelector(`[data-report="${focused}"]`)?.focus();
}

function show(id, byChoice) {
  open = id;
  drawReports();
  drawShown();
  if (byChoice) {
    if (matchMedia("(max-width: 860px)").matches) $("shown").scrollIntoView({ behavior: "smooth" });
    $("shown").focus({ preventScroll: true });
  }
}

function drawShown() {
  const one = reports.find((known) => known.id === open);
  const how = one ? `${one.id} ${one.state} ${language}` : `welcome ${language}`;
  if (how === shownAs && one?.state !== "running") return;
  const again = how === shownAs;
  shownAs = how;
  if (!one) return $("shown").replaceChildren(welcome());
  if (one.state === "done") return $("shown").replaceChildren(...framed(one));
  if (again) return drawProgress(one);
  const state = node("div", undefined, "state");
  const title = node("h1");
  title.append(node("span", say(one.tool)), " ");
  state.append(title, node("code", titled(one)));
  if (one.state === "running") {
    const bar = node("div", undefined, "moving");
    bar.append(node("i"));
    const doing = node("p", undefined, "doing");
    doing.setAttribute("role", "status");
    state.append(bar, doing, node("div", undefined, "live"), node("ol", undefined, "done"), node("p", undefined, "remark seconds"), button(say("cancel"), "", () => tried(() => ask(`jobs/${one.id}/cancel`, {}))));
  } else {
    state.append(chip(one));
    if (one.complaint) {
      const said = node("pre", one.complaint);
      said.tabIndex = 0;
      state.append(said);
    }
  }
  $("shown").replaceChildren(state);
  if (one.state === "running") drawProgress(one);
}

function drawProgress(one) {
  drawLive(one);
  const doing = $("shown").querySelector(".doing");
  const text = one.doing || say("starting");
  if (!doing || doing.textContent === text) return;
  if (doing.textContent) $("shown").querySelector(".done").append(node("li", `${took(Date.now() / 1000 - one.begun)} · ${doing.textContent}`));
  doing.textContent = text;
}

// What the ranks of a rehearsal do, while they do it: phase, part, memory so far, and what has failed.
const COLOURS = ["#4269d0", "#efb118", "#3ca951", "#a463f2"];
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const IN_STEPS = ["forward", "backward", "step"];

function drawLive(one) {
  const host = $("shown").querySelector(".live");
  const states = live[one.id] ?? [];
  const last = states[states.length - 1];
  if (!host || !last || host.dataset.drawn === String(states.length)) return;
  host.dataset.drawn = states.length;
  const list = node("ul", undefined, "ranks");
  list.append(...last.ranks.map((rank, index) => {
    const row = node("li");
    const mark = node("i");
    mark.style.background = COLOURS[index % COLOURS.length];
    const step = IN_STEPS.includes(rank.phase) && rank.step < last.steps ? say("step of").replace("{step}", rank.step + 1).replace("{steps}", last.steps) : "";
    const where = rank.phase ? [say(`phase ${rank.phase}`), step].filter(Boolean).join(" · ") : say(`state ${rank.state}`);
    if (rank.failure && rank.phase) row.title = say("second pass");
    row.append(mark, node("b", `${say("rank")} ${rank.rank}`), node("span", where, "where"), ...(row.title ? [node("span", row.title)] : []));
    if (rank.gpu !== undefined) row.append(node("span", `${say("gpu memory")} ${gib(rank.gpu)} · ${say("host memory of rank")} ${gib(rank.host)}`), node("code", rank.doing));
    return row;
  }));
  const failed = [...new Map(states.flatMap((state) => state.ranks).filter((rank) => rank.failure).map((rank) => [rank.rank, rank])).values()];
  const alert = node("div", undefined, "found");
  alert.setAttribute("role", "alert");
  alert.append(...failed.map((rank) => node("p", `${say("rank")} ${rank.rank}: ${rank.failure}`)));
  const before = host.querySelector(".found");
  host.replaceChildren(before && before.textContent === alert.textContent ? before : alert, list, ...curveSoFar(states));
}

function curveSoFar(states) {
  const seen = states.filter((state) => state.ranks.some((rank) => rank.gpu !== undefined));
  if (seen.length < 2) return [];
  const most = Math.max(1, ...seen.flatMap((state) => state.ranks.map((rank) => rank.gpu ?? 0)));
  const [from, to] = [seen[0].seconds, seen[seen.length - 1].seconds];
  const [width, height] = [600, 140];
  const shape = (tag, attributes, text) => {
    const made = document.createElementNS($("drawing").namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height + 34}`, role: "img", "aria-label": `${say("memory so far")}: ${gib(most)}` });
  const x = (seconds) => (width * (seconds - from)) / Math.max(to - from, 1);
  const y = (bytes) => 14 + height - (height * bytes) / most;
  picture.append(shape("text", { x: 0, y: 10 }, `${say("memory so far")} (${gib(most)})`), shape("line", { class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0) }));
  const phaseOf = (state) => state.ranks.find((rank) => rank.phase)?.phase;
  let written = -1e9;
  for (const [index, state] of seen.entries()) {
    const phase = phaseOf(state);
    if (!phase || (index && phase === phaseOf(seen[index - 1]))) continue;
    picture.append(shape("line", { class: "phase", x1: x(state.seconds), x2: x(state.seconds), y1: 14, y2: y(0) }));
    if (x(state.seconds) - written < 90 || x(state.seconds) > width - 60) continue;
    written = x(state.seconds);
    picture.append(shape("text", { x: written, y: height + 28 }, say(`phase ${phase}`)));
  }
  const ranks = [...new Set(seen.flatMap((state) => state.ranks.map((rank) => rank.rank)))];
  for (const [index, rank] of ranks.slice(0, COLOURS.length).entries()) {
    const points = seen.flatMap((state) => {
      const own = state.ranks.find((other) => other.rank === rank);
      return own?.gpu === undefined ? [] : [`${x(state.seconds).toFixed(1)},${y(own.gpu).toFixed(1)}`];
    });
    const line = shape("polyline", { points: points.join(" "), fill: "none", "stroke-width": 2 });
    line.style.stroke = COLOURS[index];
    picture.append(line);
  }
  return [picture];
}

function framed(one) {
  const bar = node("div", undefined, "frame-bar");
  const address = `${told.reports}${one.id}#${language}`;
  const apart = node("a", `${say("own tab")} ↗`);
  apart.href = address;
  apart.target = "_blank";
  apart.rel = "noreferrer noopener";
  const what = node("code", `${titled(one)} · ${took(one.seconds)}`);
  what.title = what.textContent;
  bar.append(what, ...comparing(one), apart);
  const frame = node("iframe");
  frame.title = `${say("report")}: ${one.verdict} ${say(one.tool)}`;
  frame.setAttribute("sandbox", "allow-scripts allow-popups allow-popups-to-escape-sandbox");
  frame.allow = "clipboard-write";
  frame.src = address;
  return [bar, frame];
}

// A choice of the other rehearsals that are kept: the older of the two is the one before.
function comparing(one) {
  const others = reports.filter((other) => other.tool === "rehearse" && other.state === "done" && other.id !== one.id);
  if (one.tool !== "rehearse" || !others.length) return [];
  const label = node("label", `${say("compare with")} `);
  const select = node("select");
  select.append(Object.assign(node("option", say("choose another")), { value: "" }));
  for (const other of others) select.append(Object.assign(node("option", `${other.verdict} · ${when(other).textContent} · ${titled(other)}`), { value: other.id }));
  select.addEventListener("change", () => select.value && tried(async () => {
    const made = await ask("compare", { one: one.id, other: select.value, language });
    reports = [made, ...reports];
    show(made.id, true);
  }));
  label.append(select);
  return [label];
}

// A log that is dropped on the page is read here; a script or a folder's log is chosen where it lies.
async function dropped(files) {
  $("refused").textContent = "";
  for (const file of files) {
    const entry = entries.entries.find((one) => one.name === file.name && ["launch", "log", "records"].includes(one.kind));
    if (entry?.kind === "launch") {
      choose("before");
      $("command").value = entry.command;
      drawFolder();
    } else if (entry?.kind === "log") {
      choose("after");
      logs = [...new Set([...logs, joined(folder, entry.name)])];
      drawChosen();
    } else if (/\.(sh|py|sbatch|slurm|ya?ml|json|ipynb|toml)$/.test(file.name)) {
      $("refused").textContent = say("not here").replace("{name}", file.name);
    } else {
      choose("after");
      $("log").value = await file.text();
      $("log").focus();
    }
  }
}

function welcome() {
  const made = node("div", undefined, "welcome");
  made.append(node("h1", say("welcome")));
  for (const name of ["check", "rehearse", "plan", "cure"]) {
    const line = node("p");
    for (const [index, part] of say(`welcome ${name}`).split("**").entries()) line.append(index % 2 ? node("b", part) : part);
    made.append(line);
  }
  made.append(node("p", say("drop")));
  return made;
}

setInterval(() => {
  const one = reports.find((known) => known.id === open);
  const said = $("shown").querySelector(".seconds");
  if (one?.state === "running" && said) said.textContent = took(Math.max(0, Date.now() / 1000 - one.begun));
}, 500);

// -- the page ----------------------------------------------------------------------------------------------------------

function speak(chosen) {
  language = document.documentElement.lang = chosen;
  for (const one of document.querySelectorAll("[data-language]")) one.setAttribute("aria-pressed", String(one.dataset.language === chosen));
  for (const one of document.querySelectorAll("[data-say]")) one.textContent = say(one.dataset.say);
  for (const one of document.querySelectorAll("[data-say-placeholder]")) one.placeholder = say(one.dataset.sayPlaceholder);
  for (const one of document.querySelectorAll("[data-say-label]")) one.setAttribute("aria-label", say(one.dataset.sayLabel));
  $("refused").textContent = "";
  drawFolder();
  drawReports();
  drawShown();
}

async function begin() {
  told = await (await fetch("api/start")).json();
  $("root").textContent = $("root").title = told.root;
  document.title = `gonogo · ${told.root.split("/").pop() || "/"}`;
  $("known-gpus").replaceChildren(...told.gpus.map((name) => Object.assign(node("option"), { value: name })));
  for (const one of document.querySelectorAll("[data-language]")) one.addEventListener("click", () => speak(one.dataset.language));
  for (const [name, other] of [["before", "after"], ["after", "before"]]) {
    $(`tab-${name}`).addEventListener("click", () => choose(name));
    $(`tab-${name}`).addEventListener("keydown", (event) => { if (/^Arrow(Left|Right)$/.test(event.key)) choose(other, true); });
  }
  $("command").addEventListener("input", drawFolder);
  $("before").addEventListener("submit", (event) => { event.preventDefault(); start(event.submitter?.value ?? "check", asked()); });
  $("after").addEventListener("submit", (event) => {
    event.preventDefault();
    start("diagnose", { log: $("log").value, logs: logs.map(upTo), with_files: $("with_files").checked });
  });
  addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    tried(() => dropped([...event.dataTransfer.files]));
  });
  speak(language);
  await enter("");
  await tried(async () => { reports = await ask("reports"); });
  drawReports();
  for (const one of reports) if (one.state === "running") follow(one.id, "");
}

begin();
