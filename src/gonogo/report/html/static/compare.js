// Two rehearsals' memory, laid over each other phase by phase. Uses what report.js has.
"use strict";
const MIB = 2 ** 20;
const BEFORE = "#efb118", AFTER = "#4269d0";

const totalAt = (side, point) => {
  const columns = Object.values(side);
  return columns.length && columns[0][point] !== null ? MIB * columns.reduce((sum, column) => sum + column[point], 0) : null;
};

// What both held at a moment, and which categories make the difference.
function describeBoth(pair, point) {
  const [phase, step] = pair.phases.find(([, , first, last]) => point >= first && point <= last);
  const when = say(`phase ${phase}`) + (IN_STEPS.has(phase) ? say("in step").replace("{n}", step) : "");
  const [was, is] = [totalAt(pair.before, point), totalAt(pair.after, point)];
  const told = (bytes) => (bytes === null ? say("not run") : size(bytes));
  const both = `${when}${say("colon")}${say("before")} ${told(was)}${say("comma")}${say("after")} ${told(is)}`;
  if (was === null || is === null) return both;
  const moved = [...new Set([...Object.keys(pair.before), ...Object.keys(pair.after)])]
    .map((name) => [name, MIB * ((pair.after[name]?.[point] ?? 0) - (pair.before[name]?.[point] ?? 0))])
    .filter(([, bytes]) => Math.abs(bytes) >= 16 * MIB)
    .sort((one, other) => Math.abs(other[1]) - Math.abs(one[1])).slice(0, 3)
    .map(([name, bytes]) => `${say(name)} ${bytes > 0 ? "+" : "−"}${size(Math.abs(bytes))}`);
  return moved.length ? `${both}${say("comma")}${moved.join(say("comma"))}` : both;
}

function drawCompared(host, said, pair) {
  host.replaceChildren();
  const points = pair.phases.at(-1)[3] + 1;
  const at = Array.from({ length: points }, (_, point) => point);
  const [before, after] = [pair.before, pair.after].map((side) => at.map((point) => totalAt(side, point)));
  const most = Math.max(...before, ...after);
  const peak = after.indexOf(Math.max(...after));
  const axis = axisStyle();
  const stepped = uPlot.paths.stepped({ align: 1 });
  const line = (name, colour, more) => ({
    label: say(name), stroke: colour, width: 2, paths: stepped, points: { show: false },
    value: (plot, bytes) => (bytes === null ? "" : size(bytes)), ...more,
  });
  const plot = new uPlot({
    width: host.clientWidth, height: 320, scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.13 || 1] } },
    axes: [{ ...axis, label: say("phases"), labelSize: 20, values: (u, ticks) => ticks.map(() => "") }, { ...axis, size: 80, values: (u, ticks) => ticks.map((tick) => (tick ? size(tick) : "0")), incrs: binary }],
    series: [
      { label: say("moment"), value: () => "" },
      line("before", BEFORE, { dash: [6, 4] }),
      line("after", AFTER, { fill: "#4269d030" }),
      ...(pair.capacity ? [line("capacity", ink(), { width: 1.5, dash: [2, 3], show: most * 2 > pair.capacity })] : []),
    ],
    hooks: {
      draw: [phaseBands({ phases: pair.phases, allocations: 1 })],
      setCursor: [(u) => {
        if (u.cursor.idx == null) u.setLegend({ idx: peak }, false);
        said.textContent = u.cursor.idx == null ? `${say("peak")} ${describeBoth(pair, peak)}` : describeBoth(pair, u.cursor.idx);
      }],
      ready: [(u) => u.setCursor({ left: -10, top: -10 })],
    },
  }, [at, before, after, ...(pair.capacity ? [at.map(() => pair.capacity)] : [])], host);
  plot.peak = peak;
  host.plot = plot;
}
