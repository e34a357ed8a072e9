// Below memory over time: in which module each moment's memory was allocated, level by level. Uses what report.js has.
"use strict";
const LANE = 18;
const MAX_LANES = 3;
const LANE_COLOURS = ["#9ecae9", "#a7e0d2", "#d3b8f8", "#a8dba8", "#f8d98b", "#ffbcae", "#c9d1d9"];

// Neighbouring points in one module, per level: [name, path, first point, last point]. What all points share has no lane.
function moduleLanes(timeline) {
  const paths = timeline.modules.of.map((number) => timeline.modules.texts[number].split(".").filter(Boolean));
  const named = paths.filter((path) => path.length);
  let common = 0;
  while (named.length && named.every((path) => path.length > common + 1 && path[common] === named[0][common])) common += 1;
  const lanes = [];
  for (let level = common; level < common + MAX_LANES; level += 1) {
    const lane = [];
    for (const [point, path] of paths.entries()) {
      const key = path.length > level ? path.slice(0, level + 1).join(".") : null;
      const last = lane.at(-1);
      if (last && last[1] === key && last[3] === point - 1) last[3] = point;
      else if (key !== null) lane.push([path[level], key, point, point]);
    }
    if (lane.length) lanes.push(lane);
  }
  return lanes;
}

const colourOf = (name) => LANE_COLOURS[[...name].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 9973, 7) % LANE_COLOURS.length];

function drawLanes(plot, host, timeline, lanes) {
  const { left, width } = plot.over.getBoundingClientRect();
  const from = left - host.getBoundingClientRect().left;
  const canvas = host.firstChild;
  const ratio = devicePixelRatio;
  host.style.height = `${lanes.length * LANE}px`;
  canvas.style.left = `${from}px`;
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${lanes.length * LANE}px`];
  [canvas.width, canvas.height] = [width * ratio, lanes.length * LANE * ratio];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const [depth, lane] of lanes.entries()) {
    for (const [name, , first, last] of lane) {
      const start = Math.max(plot.valToPos(first * timeline.allocations, "x"), 0);
      const end = Math.min(plot.valToPos((last + 1) * timeline.allocations, "x"), width);
      if (end - start < 0.3) continue;
      context.fillStyle = colourOf(name);
      context.fillRect(start, depth * LANE, Math.max(end - start - (end - start > 3 ? 1 : 0), 0.5), LANE - 2);
      if (context.measureText(name).width + 6 < end - start) {
        context.fillStyle = "#1f2328";
        context.fillText(name, start + 3, depth * LANE + LANE / 2 - 1);
      }
    }
  }
}

// The lanes stand right below the plot, before its legend; the pointer on them is the pointer on the chart.
function addLanes(plot, timeline) {
  const lanes = moduleLanes(timeline);
  if (!lanes.length) return () => {};
  const host = node("div", undefined, "module-lanes");
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", say("lanes"));
  host.title = say("lanes");
  host.append(node("canvas"));
  plot.root.querySelector(".u-wrap").after(host);
  const along = (event) => plot.setCursor({ left: event.clientX - plot.over.getBoundingClientRect().left, top: 10 });
  host.addEventListener("pointermove", along);
  host.addEventListener("pointerdown", along);
  host.addEventListener("pointerleave", () => plot.setCursor({ left: -10, top: -10 }));
  return () => drawLanes(plot, host, timeline, lanes);
}
