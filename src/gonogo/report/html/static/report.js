"use strict";
// Everything that is shown here was escaped when the page was made, or is set as text: nothing is parsed as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = { parameters: "#4269d0", gradients: "#6cc5b0", optimizer: "#a463f2", activations: "#3ca951", communication: "#efb118", temporary: "#ff725c", workspace: "#97bbf5", rollout: "#9c6b4e" };
const GIB = 2 ** 30;
const IN_STEPS = new Set(["forward", "backward", "step"]);
let language = document.documentElement.lang;
const say = (name) => data.words[language][name] ?? name;
const size = (bytes) => (bytes >= GIB ? `${(bytes / GIB).toFixed(1)} GiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);
const shown = () => [...document.querySelectorAll(".tongue")].find((one) => one.lang === language);
let printing = false;
const ink = () => (printing ? "#1f2328" : getComputedStyle(document.body).color); // paper is white, whatever the screen is

function node(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const axisStyle = () => ({ stroke: ink(), grid: { stroke: "#8886", width: 0.5 }, ticks: { stroke: "#8886" } });
const binary = [...Array(30)].flatMap((_, power) => [2 ** (20 + power)]); // steps of a scale of bytes

// -- memory over time --------------------------------------------------------------------------------------------------

function columns(timeline) {
  const names = Object.keys(timeline.held);
  const points = timeline.reached.length;
  const sums = [];
  let below = new Array(points).fill(0);
  for (const name of names) {
    below = below.map((bytes, at) => bytes + timeline.held[name][at]);
    sums.push(below);
  }
  return { names, sums, at: Array.from({ length: points }, (_, point) => (point + 1) * timeline.allocations) };
}

function phaseBands(timeline) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    for (const [index, [phase, step, first, last]] of timeline.phases.entries()) {
      const from = Math.max(plot.valToPos(first * timeline.allocations, "x", true), bbox.left);
      const to = Math.min(plot.valToPos((last + 1) * timeline.allocations, "x", true), bbox.left + bbox.width);
      if (to <= from) continue;
      ctx.globalAlpha = index % 2 ? 0.1 : 0.03;
      ctx.fillStyle = ink();
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
      const label = say(`phase ${phase}`) + (IN_STEPS.has(phase) ? ` ${step}` : "");
      if (ctx.measureText(label).width + 6 < to - from) {
        ctx.globalAlpha = 0.75;
        ctx.fillText(label, from + 4, bbox.top + 4);
      }
    }
    ctx.restore();
  };
}

// What stands above the chart, and where the highest moment is.
function marksOf(timeline, peak) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = ink();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    const capacity = plot.series.findIndex((one) => one.name === "capacity");
    if (capacity > 0 && !plot.series[capacity].show) {
      ctx.textAlign = "right";
      ctx.fillText(`↑ ${say("capacity")} ${size(timeline.capacity)}`, bbox.left + bbox.width - 4, bbox.top + 18 * devicePixelRatio);
    }
    const across = plot.valToPos(plot.data[0][peak], "x", true);
    const up = plot.valToPos(heldAt(timeline, peak), "y", true);
    if (across >= bbox.left - 1 && across <= bbox.left + bbox.width + 1) {
      const wide = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(across, up);
      ctx.lineTo(across - wide, up - 1.6 * wide);
      ctx.lineTo(across + wide, up - 1.6 * wide);
      ctx.fill();
    }
    ctx.restore();
  };
}

const heldAt = (timeline, point) => Object.values(timeline.held).reduce((sum, column) => sum + column[point], 0);

function describe(timeline, point) {
  const run = timeline.phases.find(([, , first, last]) => point >= first && point <= last);
  const [module, operator, place] = ["modules", "operators", "places"].map((name) => timeline[name].texts[timeline[name].of[point]]);
  const when = say(`phase ${run[0]}`) + (IN_STEPS.has(run[0]) ? say("in step").replace("{n}", run[1]) : "");
  const by = [say(timeline.reached[point]), module || say("outside"), operator, place && `${say("at")} ${place}`].filter(Boolean).join(say("comma"));
  return `${size(heldAt(timeline, point))}${say("colon")}${when}${say("comma")}${say("reached by")} ${by}`;
}

function drawTimeline(host, said, timeline) {
  host.replaceChildren();
  const { names, sums, at } = columns(timeline);
  const lines = [];
  const most = Math.max(...sums.at(-1), ...timeline.reserved);
  if (timeline.reserved.length) lines.push({ name: "reserved", values: timeline.reserved, dash: [6, 4], show: true });
  if (timeline.capacity) lines.push({ name: "capacity", values: at.map(() => timeline.capacity), dash: [2, 3], show: most * 2 > timeline.capacity });
  const peak = sums.at(-1).indexOf(Math.max(...sums.at(-1)));
  const stepped = uPlot.paths.stepped({ align: -1 });
  const areas = names.map((name, index) => ({
    label: say(name), fill: COLOURS[name], stroke: COLOURS[name], width: 1, paths: stepped, points: { show: false },
    value: (plot, sum, series, point) => (point === null ? "" : size(timeline.held[name][point])),
  })).reverse();
  const rest = lines.map((line) => ({
    label: say(line.name), name: line.name, show: line.show, stroke: ink(), width: 1.5, dash: line.dash, paths: stepped, points: { show: false },
    value: (plot, bytes) => (bytes === null ? "" : size(bytes)),
  }));
  const axis = axisStyle();
  let drawBelow = () => {};
  const plot = new uPlot({
    width: host.clientWidth, height: 320, scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.13 || 1] } },
    axes: [
      { ...axis, label: say("allocations"), labelSize: 20, values: (u, ticks) => ticks.map((tick) => (tick >= 1000 ? `${tick / 1000}k` : tick)) },
      { ...axis, size: 80, values: (u, ticks) => ticks.map((tick) => (tick ? size(tick) : "0")), incrs: binary },
    ],
    series: [{ label: say("allocations") }, ...areas, ...rest],
    hooks: {
      draw: [phaseBands(timeline), marksOf(timeline, peak), () => drawBelow()],
      setCursor: [(u) => {
        if (u.cursor.idx == null) u.setLegend({ idx: peak }, false); // unasked it tells of the peak: on paper, and to a finger
        said.textContent = u.cursor.idx == null ? `▼ ${say("peak")} ${describe(timeline, peak)}` : describe(timeline, u.cursor.idx);
      }],
      ready: [(u) => u.setCursor({ left: -10, top: -10 })],
    },
  }, [at, ...sums.toReversed(), ...lines.map((line) => line.values)], host);
  plot.peak = peak;
  host.plot = plot;
  drawBelow = addLanes(plot, timeline);
  drawBelow();
}

// From a finding to its moment: the chart shows that device, and tells of that point.
function goToMoment(event) {
  const { timeline, point } = event.currentTarget.dataset;
  const part = shown().querySelector('.over-time[data-kind="held"]').closest("section");
  const select = part.querySelector(".chooser select");
  if (select.value !== timeline) {
    select.value = timeline;
    draw();
  }
  const host = part.querySelector(".over-time");
  whole(host.plot);
  part.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  host.focus({ preventScroll: true });
  setTimeout(() => host.plot.setCursor({ left: host.plot.valToPos(host.plot.data[0][Number(point)], "x"), top: 10 }), 50);
}

function zoom(plot, factor) {
  const { min, max } = plot.scales.x;
  const about = plot.data[0][plot.cursor.idx ?? plot.peak];
  const middle = about >= min && about <= max ? about : (min + max) / 2;
  const ends = plot.data[0];
  const low = Math.max(ends[0], middle - (middle - min) * factor);
  plot.setScale("x", { min: low, max: Math.min(ends[ends.length - 1], middle + (max - middle) * factor) });
}

const whole = (plot) => plot.setScale("x", { min: plot.data[0][0], max: plot.data[0].at(-1) });

function onKey(event) {
  const plot = event.currentTarget.plot;
  const point = plot.cursor.idx ?? 0;
  const go = (to) => plot.setCursor({ left: plot.valToPos(plot.data[0][to], "x"), top: 10 });
  const ends = plot.data[0];
  if (event.key === "ArrowRight") go(Math.min(point + 1, ends.length - 1));
  else if (event.key === "ArrowLeft") go(Math.max(point - 1, 0));
  else if (event.key === "+") zoom(plot, 0.5);
  else if (event.key === "-") zoom(plot, 2);
  else if (event.key === "0") whole(plot);
  else return;
  event.preventDefault();
}

// -- the page ----------------------------------------------------------------------------------------------------------

function draw() {
  const page = shown();
  let chosen = null;
  for (const host of page.querySelectorAll(".over-time")) {
    const part = host.closest("section");
    const { value } = part.querySelector(".chooser select");
    const said = part.querySelector(".at");
    if (host.dataset.kind === "compared") drawCompared(host, said, data.compared.pairs[Number(value)]);
    else if (data.steps) drawSteps(host, said, data.steps, value);
    else drawTimeline(host, said, data.timelines[Number((chosen = value))]);
  }
  for (const lanes of page.querySelectorAll(".lanes")) lanes.parentElement.scrollLeft = lanes.scrollWidth; // where they part
  const icicle = page.querySelector(".icicle");
  if (icicle) drawModules(icicle, (moduleRoot = moduleTree(data.modules.lists[data.modules.of[Number(chosen ?? 0)] ?? 0])));
  if (data.whatIf) answerWhatIf();
}

function speak(chosen) {
  const choices = (tongue) => [...document.querySelectorAll(`.tongue[lang="${tongue}"] .chooser select`)];
  for (const [index, select] of choices(chosen).entries()) select.value = choices(language)[index].value;
  language = document.documentElement.lang = chosen;
  for (const tongue of document.querySelectorAll(".tongue")) tongue.hidden = tongue.lang !== chosen;
  for (const button of document.querySelectorAll("[data-language]")) button.setAttribute("aria-pressed", String(button.dataset.language === chosen));
  draw();
}

function sortable(table) {
  const figures = (cell) => {
    const found = cell.textContent.replaceAll(",", "").match(/-?\d+(\.\d+)?/);
    return found ? Number(found[0]) * (cell.textContent.includes("GiB") ? 1024 : 1) : null;
  };
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    if (table.tBodies[0].rows.length < 3 || !head.textContent) continue;
    const button = node("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [one.cells[column], other.cells[column]];
        const [x, y] = [figures(a), figures(b)];
        const order = x !== null && y !== null ? x - y : a.textContent.localeCompare(b.textContent);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  }
}

async function copy(event) {
  const button = event.currentTarget;
  const text = button.nextElementSibling.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = node("textarea", text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = button.textContent;
  button.textContent = "✓";
  setTimeout(() => { button.textContent = before; }, 1200);
}

for (const button of document.querySelectorAll("[data-language]")) button.addEventListener("click", () => speak(button.dataset.language));
for (const button of document.querySelectorAll(".moment")) button.addEventListener("click", goToMoment);
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", copy);
for (const select of document.querySelectorAll(".chooser select")) select.addEventListener("change", draw);
for (const host of document.querySelectorAll(".over-time")) host.addEventListener("keydown", onKey);
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => {
    const { plot } = button.closest("section").querySelector(".over-time");
    if (button.dataset.zoom === "all") whole(plot);
    else zoom(plot, button.dataset.zoom === "in" ? 0.5 : 2);
  });
}
for (const table of document.querySelectorAll("table")) if (table.tHead && !table.closest(".over-time")) sortable(table);
const openChosen = () => {
  const chosen = location.hash && document.getElementById(location.hash.slice(1));
  if (!chosen || chosen.tagName !== "DETAILS") return;
  chosen.open = true;
  chosen.scrollIntoView();
  chosen.querySelector("summary").focus();
};
for (const point of document.querySelectorAll(".scatter a")) point.addEventListener("click", () => setTimeout(openChosen));
openChosen();
startWhatIf();
const asked = document.querySelector(`[data-language="${CSS.escape(location.hash.slice(1))}"]`);
const widths = new ResizeObserver((entries) => { // a notebook may lay its frame out after the charts were drawn
  for (const { target } of entries) {
    const width = target.clientWidth;
    if (target.plot && width && target.plot.width !== width) target.plot.setSize({ width, height: 320 });
  }
});
for (const host of document.querySelectorAll(".over-time")) widths.observe(host);
for (const [event, is] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    printing = is;
    draw();
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
if (asked && self !== top) asked.parentElement.hidden = true; // what is around it says the language
if (asked && asked.dataset.language !== language) speak(asked.dataset.language);
else draw();
