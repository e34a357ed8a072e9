// What if: memory with other settings, from the curves of what was rehearsed. Uses what report.js has.
"use strict";
const FREE = new Set(["activations", "temporary"]); // of a step: what can grow with batch and length
const MODEL = ["stage", "offload-optimizer", "offload-parameters"];
const chosenIf = {}; // by setting; of both languages' controls

const filled = (name, values) => say(name).replace(/\{(\w+)\}/g, (_, key) => values[key]);
const gpuOf = (name) => [...data.whatIf.gpus, data.whatIf.own].find(([one]) => one === name);

// The least and the most that is allocated with m samples of s tokens, by one rehearsal: [bytes, bytes].
function bandOf(point, m, s) {
  const { held, phases } = point.curve;
  const batch = m / point["micro-batch"];
  const length = s / point["seq-len"];
  const longest = s / point["min-tokens"]; // a moment may have been one of the shortest samples
  if (batch === 1 && length === 1) return [point.allocated, point.allocated];
  const times = (phase, one) => (phase === "evaluate" ? one : phase === "forward" || phase === "backward" ? batch * one : 1);
  let [least, most] = [0, 0];
  for (const [phase, , first, last] of phases) {
    const linear = times(phase, length);
    const linearMost = times(phase, phase === "evaluate" && length === 1 ? 1 : longest);
    const square = data.whatIf.eager ? linear * length : linear;
    const squareMost = data.whatIf.eager ? linearMost * longest : linearMost;
    const grows = { activations: [Math.min(linear, square), Math.max(linearMost, squareMost)] };
    grows.temporary = [Math.min(1, linear, square), Math.max(1, linearMost, squareMost)];
    for (let at = first; at <= last; at += 1) {
      let [low, high] = [0, 0];
      for (const [name, column] of Object.entries(held)) {
        const [slow, fast] = (linear !== 1 || linearMost !== 1) && FREE.has(name) ? grows[name] : [1, 1];
        low += column[at] * slow;
        high += column[at] * fast;
      }
      least = Math.max(least, low);
      most = Math.max(most, high);
    }
  }
  // A mask of each sample's tokens with each other, where the attention may be given one.
  const mask = data.whatIf.masks ? Math.max(0, 2 * (m * s * s - point["micro-batch"] * point["seq-len"] ** 2)) : 0;
  return [least * MIB, most * MIB + mask];
}

// {low, high: bytes used of the GPU, how: why that is known}, or {how} alone where nothing is.
function whatIf(settings) {
  const { points, base } = data.whatIf;
  const [, , allowance] = gpuOf(settings.gpu);
  const alike = points.filter((point) => MODEL.every((name) => String(point[name]) === String(settings[name])));
  if (!alike.length) return { how: "not rehearsed" };
  const same = (point, ...names) => names.every((name) => point[name] === settings[name]);
  const exact = alike.find((point) => same(point, "micro-batch", "seq-len", "accumulation"));
  const own = settings.gpu === data.whatIf.own[0];
  if (exact) {
    const used = exact.reserved + allowance;
    return { low: own ? used : exact.allocated + allowance, high: used, how: own ? "rehearsed" : "other gpu", host: exact.host };
  }
  const accumulating = alike.filter((point) => point.accumulation > 1 === settings.accumulation > 1);
  if (!accumulating.length) return { how: "accumulates" };
  if (data.whatIf.rollout && !accumulating.some((point) => same(point, "micro-batch", "seq-len"))) return { how: "rolls out" };
  let [low, high] = [0, Infinity];
  for (const point of accumulating) {
    const [least, most] = bandOf(point, settings["micro-batch"], settings["seq-len"]);
    low = Math.max(low, least);
    high = Math.min(high, most * (point.reserved / point.allocated));
  }
  const near = accumulating.some((point) => same(point, "micro-batch", "seq-len"));
  const how = near && own ? "rehearsed" : near ? "other gpu" : "derived";
  if (near && own) low = high; // more micro-batches like those that were run hold no more
  return { low: Math.min(low, high) + allowance, high: Math.max(low, high) + allowance, how, host: accumulating[0].host };
}

// Seconds of a step, [least, most], or null: as rehearsed, or between the bounds of other micro-batches.
function timeOf(settings) {
  const { points, base, time, own, rollout } = data.whatIf;
  if (settings.gpu !== own[0]) return null;
  const same = (point, ...names) => names.every((name) => String(point[name]) === String(settings[name]));
  const exact = points.find((point) => same(point, "micro-batch", "seq-len", "accumulation", ...MODEL));
  if (exact) return exact.seconds ? [exact.seconds, exact.seconds] : null;
  if (!time || rollout || !same(base, "seq-len", ...MODEL)) return null;
  const { fixed, waits, bounds } = time;
  const samples = settings["micro-batch"] / base["micro-batch"];
  const padded = samples === 1 ? 1 : points[0]["seq-len"] / points[0]["min-tokens"]; // of samples of several lengths
  const below = bounds.filter(([factor]) => factor <= samples / padded).pop();
  const above = bounds.find(([factor]) => factor >= samples * padded);
  if (!below || !above) return null;
  const times = settings.accumulation / base.accumulation;
  const all = (seconds) => (seconds - fixed) * times + fixed;
  const once = (seconds) => (seconds - fixed - waits) * times + fixed + waits; // collectives once in a step
  const found = [all(below[1]), once(below[1]), all(above[2]), once(above[2]), ...(times > 1 ? [above[2] * times] : [])];
  return [Math.min(...found), Math.max(...found)];
}

const figures = (numbers, round) => [...new Set(numbers.map(round))].join(" – ");

function commandFor(settings) {
  const { base, command, count } = data.whatIf;
  const set = { ...command.changed };
  for (const name of ["micro-batch", "seq-len", "accumulation", ...MODEL]) {
    if (settings[name] !== undefined && String(settings[name]) !== String(base[name])) set[name] = settings[name];
  }
  const changed = Object.entries(set).map(([name, value]) => `--set ${name}=${value}`);
  return ["gonogo rehearse", `--gpus ${count}x${settings.gpu}`, command.options, ...changed, "--", command.words].filter(Boolean).join(" ");
}

function answerWhatIf() {
  const part = shown().querySelector(".what-if");
  if (!part) return;
  for (const control of part.querySelectorAll("[data-set]")) {
    const name = control.dataset.set;
    if (control.type !== "range") {
      control.value = chosenIf[name];
      continue;
    }
    const values = control.dataset.values.split(" ").map(Number);
    control.value = values.indexOf(chosenIf[name]);
    const told = chosenIf[name].toLocaleString("en");
    control.setAttribute("aria-valuetext", told);
    control.previousElementSibling.textContent = told;
  }
  const [gpu, total, , bfloat16] = gpuOf(chosenIf.gpu);
  const answer = whatIf(chosenIf);
  const known = answer.high !== undefined;
  const judged = part.querySelector(".judged");
  let word = known ? (answer.high <= total ? "fits" : answer.low > total ? "too large" : "may fit") : "";
  if (data.whatIf.bfloat16 && !bfloat16) word = "no bf16";
  judged.textContent = word ? filled(word, { gpu }) : "?";
  judged.dataset.judged = word;
  const range = known && size(answer.low) !== size(answer.high) ? `${size(answer.low)} – ${size(answer.high)}` : known ? size(answer.high) : "";
  part.querySelector(".used").textContent = known ? `${say("gpu memory")}${say("colon")}${filled("of", { used: range, total: size(total) })}` : "";
  const meter = part.querySelector("meter");
  meter.hidden = !known;
  if (known) {
    const share = Math.round((100 * answer.high) / total);
    meter.value = share;
    for (const [name, value] of Object.entries(share > 100 ? { low: 1, high: 99, optimum: 0 } : { low: 0, high: 100, optimum: 50 })) meter[name] = value;
  }
  const quadratic = answer.how === "derived" && data.whatIf.eager && chosenIf["seq-len"] !== data.whatIf.base["seq-len"];
  part.querySelector(".how").textContent = say(answer.how) + (quadratic ? ` ${say("quadratic")}` : "");
  const tokens = (chosenIf["micro-batch"] * chosenIf["seq-len"] * chosenIf.accumulation).toLocaleString("en");
  const time = timeOf(chosenIf);
  const perStep = chosenIf["micro-batch"] * chosenIf["seq-len"] * chosenIf.accumulation;
  const timed = time && {
    seconds: figures(time, (seconds) => seconds.toPrecision(3)),
    speed: figures([perStep / time[1], perStep / time[0]], (speed) => Math.round(speed).toLocaleString("en")),
  };
  const besides = [filled("tokens a step", { tokens }), ...(timed ? [filled("time", timed)] : []), ...(answer.host ? [filled("host", { host: size(answer.host) })] : [])];
  part.querySelector(".besides").textContent = besides.join(language === "zh" ? "；" : "; ");
  part.querySelector(".asks").textContent = commandFor(chosenIf);
  part.querySelector(".sure").hidden = answer.how === "rehearsed" && word !== "no bf16";
}

function startWhatIf() {
  if (!data.whatIf) return;
  Object.assign(chosenIf, data.whatIf.base, { gpu: data.whatIf.own[0] });
  for (const control of document.querySelectorAll(".what-if [data-set]")) {
    control.addEventListener("input", () => {
      const name = control.dataset.set;
      const value = control.type === "range" ? Number(control.dataset.values.split(" ")[control.value]) : control.value;
      chosenIf[name] = name === "stage" ? Number(value) : value;
      if (name === "stage" && chosenIf.stage < 3) chosenIf["offload-parameters"] = "none"; // ZeRO-3's alone
      answerWhatIf();
    });
  }
}
