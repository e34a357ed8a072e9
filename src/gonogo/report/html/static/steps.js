// The steps of a guarded run: a line a rank. Uses what report.js has.
"use strict";
const LINES = ["#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0", "#9c6b4e", "#97bbf5"];
const fill = (name, values) => say(name).replace(/\{(\w+)\}/g, (_, key) => values[key]);
const time = (seconds) => (seconds >= 100 ? `${Math.round(seconds)} s` : seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(seconds * 1000).toFixed(0)} ms`);

function stallBands(steps) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--no-go");
    ctx.globalAlpha = 0.25;
    for (const step of new Set(steps.stalls.map(([, at]) => at))) {
      const at = plot.valToPos(step, "x", true);
      const width = Math.max(Math.abs(plot.valToPos(step + steps.width, "x", true) - at), 3 * devicePixelRatio);
      if (at >= bbox.left - width && at <= bbox.left + bbox.width) ctx.fillRect(at - width / 2, bbox.top, width, bbox.height);
    }
    ctx.restore();
  };
}

function describeSteps(steps, kind, point) {
  const figure = kind === "seconds" ? time : size;
  const values = steps.ranks.map((one) => [one[kind][point], one.rank]).filter(([value]) => value !== null).sort((one, other) => one[0] - other[0]);
  const [first, last] = [point * steps.width + 1, (point + 1) * steps.width];
  const said = [`${say("step number")} ${first === last ? first : `${first}-${last}`}`];
  if (values.length) {
    const [highest, rank] = values[values.length - 1];
    said.push(fill(kind === "seconds" ? "slowest" : "most", { rank, value: figure(highest) }));
    if (values.length > 1) said.push(fill("median of ranks", { value: figure(values[values.length >> 1][0]) }));
  }
  for (const [rank, step, seconds] of steps.stalls) if (step >= first - 1 && step <= last) said.push(fill("stood", { rank, value: time(seconds) }));
  return said.join(language === "zh" ? "；" : "; ");
}

function drawSteps(host, said, steps, kind) {
  host.replaceChildren();
  const figure = kind === "seconds" ? time : size;
  const points = steps.ranks[0][kind].length;
  const series = steps.ranks.map((one, index) => ({
    label: `${say("rank")} ${one.rank}`, stroke: LINES[index % LINES.length], width: 1.5, spanGaps: false, points: { show: points < 30, size: 5 },
    value: (plot, value) => (value === null ? "" : figure(value)),
  }));
  const columns = steps.ranks.map((one) => one[kind]);
  const highest = columns[0].map((_, at) => Math.max(...columns.map((one) => one[at])));
  const most = Math.max(...highest);
  const worst = highest.indexOf(most);
  if (kind === "gpu_bytes" && most * 2 > steps.gpu_capacity) {
    series.push({ label: say("capacity"), stroke: ink(), width: 1.5, dash: [2, 3], points: { show: false }, value: (plot, bytes) => (bytes === null ? "" : size(bytes)) });
    columns.push(Array(points).fill(steps.gpu_capacity));
  }
  const plot = new uPlot({
    width: host.clientWidth, height: 320, scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.1 || 1] } },
    axes: [
      { ...axisStyle(), label: say("steps"), labelSize: 20, incrs: [...Array(9)].flatMap((_, power) => [1, 2, 5].map((one) => one * 10 ** power)) },
      { ...axisStyle(), size: 80, values: (u, ticks) => ticks.map((tick) => (tick ? figure(tick) : "0")), ...(kind === "seconds" ? {} : { incrs: binary }) },
    ],
    legend: { show: steps.ranks.length <= 16 }, focus: { alpha: 0.25 }, cursor: { focus: { prox: 24 } },
    series: [{ label: say("steps") }, ...series],
    hooks: {
      draw: [stallBands(steps)],
      setCursor: [(u) => {
        if (u.cursor.idx == null) u.setLegend({ idx: worst }, false);
        said.textContent = describeSteps(steps, kind, u.cursor.idx ?? worst);
      }],
      ready: [(u) => u.setCursor({ left: -10, top: -10 })],
    },
  }, [Array.from({ length: points }, (_, point) => (point + 1) * steps.width), ...columns], host);
  plot.peak = worst;
  host.plot = plot;
}
