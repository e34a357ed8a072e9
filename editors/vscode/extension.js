// Starts `gonogo server` and hands it to VS Code's language client: all else is the server's.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = ["json", "jsonc", "yaml", "shellscript", "python", "pip-requirements"];

let client;

/** What starts the server, by the settings. */
function serverOptions(settings) {
  const [command, ...args] = settings.get("command", ["gonogo", "server"]);
  const language = settings.get("language", "");
  return { command, args: language ? [...args, "--lang", language] : args };
}

function makeClient() {
  const options = {
    documentSelector: LANGUAGES.map((language) => ({ scheme: "file", language })),
    synchronize: { fileEvents: [] },
  };
  return new LanguageClient("gonogo", "gonogo", serverOptions(vscode.workspace.getConfiguration("gonogo")), options);
}

async function start() {
  client = makeClient();
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    vscode.window.showErrorMessage(
      `gonogo: the language server does not start (${error.message}). In a clone of gonogo: pip install -e '.[lsp]'; or set gonogo.command.`
    );
  }
}

async function stop() {
  const ending = client;
  client = undefined;
  if (ending) await ending.stop();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("gonogo.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("gonogo")) {
        await stop();
        await start();
      }
    })
  );
  await start();
}

module.exports = { activate, deactivate: stop, serverOptions, LANGUAGES };
