// The modules at the peak as an icicle: each row divides the one above it. Uses what report.js has.
"use strict";
const PARTS = ["#9ecae9", "#a7e0d2", "#d3b8f8", "#a8dba8", "#f8d98b", "#ffbcae"];
const DEEPEST = 7;
let moduleRoot = null;

function moduleTree(modules) {
  const part = (name, path) => ({ name, path, bytes: 0, held: {}, below: new Map(), count: 1 });
  const root = part(say("all"), "");
  for (const [path, held, count] of modules) {
    const names = path ? path.split(".") : [say("outside")];
    const counted = names.lastIndexOf("*") + 1 || names.length; // of several alike stands the number at their star
    let at = root;
    for (const [depth, name] of [null, ...names].entries()) {
      if (name !== null) {
        if (!at.below.has(name)) at.below.set(name, part(name, path && names.slice(0, depth).join(".")));
        at = at.below.get(name);
        if (depth === counted) at.count = Math.max(at.count, count);
      }
      for (const [category, bytes] of Object.entries(held)) {
        at.held[category] = (at.held[category] ?? 0) + bytes;
        at.bytes += bytes;
      }
    }
  }
  return root;
}

const partName = (part) => (part.count > 1 ? `${part.path || part.name} (${part.count})` : part.path || part.name);

function tellPart(said, part) {
  const held = Object.entries(part.held).filter(([, bytes]) => bytes).sort((one, other) => other[1] - one[1]);
  said.textContent = `${partName(part)}: ${size(part.bytes)} = ${held.map(([name, bytes]) => `${say(name)} ${size(bytes)}`).join(" + ")}`;
}

function drawModules(host, root) {
  const said = host.nextElementSibling;
  const had = host.contains(document.activeElement);
  host.replaceChildren();
  const height = 32;
  let deepest = 0;
  const place = (part, left, width, depth, colour) => {
    if (width < 0.2 || depth > DEEPEST) return;
    deepest = Math.max(deepest, depth);
    const box = node("button", `${part.count > 1 ? `${part.name} (${part.count})` : part.name} ${size(part.bytes)}`);
    box.type = "button";
    box.style.left = `${left}%`;
    box.style.width = `${width}%`;
    box.style.top = `${depth * height}px`;
    box.style.background = colour;
    for (const event of ["pointerenter", "focus"]) box.addEventListener(event, () => tellPart(said, part));
    box.addEventListener("click", () => drawModules(host, depth || part === moduleRoot ? part : moduleRoot));
    host.append(box);
    let at = left;
    const parts = [...part.below.values()].sort((one, other) => other.bytes - one.bytes);
    for (const [index, one] of parts.entries()) {
      const share = (width * one.bytes) / (part.bytes || 1);
      place(one, at, share, depth + 1, depth ? colour : PARTS[index % PARTS.length]);
      at += share;
    }
  };
  place(root, 0, 100, 0, "#d1d9e0");
  host.style.height = `${(deepest + 1) * height}px`;
  tellPart(said, root);
  if (had) host.firstElementChild.focus(); // or whoever uses the keyboard would start anew
}
