// The extension, with VS Code and its language client in the place of which stand objects that note what they are told.
"use strict";

const assert = require("node:assert");
const Module = require("node:module");
const test = require("node:test");

const told = { started: 0, stopped: 0, errors: [], options: undefined, fails: false };
const handlers = {};
const settings = { command: ["gonogo", "server"], language: "" };
const vscode = {
  workspace: {
    getConfiguration: () => ({ get: (name, usual) => settings[name] ?? usual }),
    onDidChangeConfiguration: (handler) => ((handlers.changed = handler), { dispose() {} }),
  },
  window: { showErrorMessage: (message) => told.errors.push(message) },
  commands: { registerCommand: (name, handler) => ((handlers[name] = handler), { dispose() {} }) },
};
class LanguageClient {
  constructor(id, name, server, options) {
    Object.assign(told, { server, options });
  }
  async start() {
    if (told.fails) throw new Error("spawn gonogo ENOENT");
    told.started += 1;
  }
  async stop() {
    told.stopped += 1;
  }
}
const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);
const extension = require("../extension.js");
const manifest = require("../package.json");

test("it starts the server of the settings, for the languages that wake it", async () => {
  const context = { subscriptions: [] };
  await extension.activate(context);
  assert.deepEqual(told.server, { command: "gonogo", args: ["server"] });
  assert.equal(told.started, 1);
  assert.equal(context.subscriptions.length, 2);
  const woken = manifest.activationEvents.map((event) => event.replace("onLanguage:", ""));
  assert.deepEqual(told.options.documentSelector.map((one) => one.language), woken);
});

test("settings and the command restart it", async () => {
  settings.language = "zh";
  await handlers.changed({ affectsConfiguration: (name) => name === "gonogo" });
  assert.deepEqual(told.server.args, ["server", "--lang", "zh"]);
  await handlers["gonogo.restart"]();
  await handlers.changed({ affectsConfiguration: () => false });
  assert.deepEqual([told.started, told.stopped], [3, 2]);
});

test("a server that is not there is said, with the way out", async () => {
  told.fails = true;
  await handlers["gonogo.restart"]();
  assert.match(told.errors[0], /pip install -e '\.\[lsp\]'/);
  await extension.deactivate();
});

test("the manifest names what is there", () => {
  assert.equal(manifest.contributes.commands[0].command, "gonogo.restart");
  assert.deepEqual(Object.keys(manifest.contributes.configuration.properties), ["gonogo.command", "gonogo.language"]);
});
